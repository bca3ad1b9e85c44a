// An axis from nothing to the whole, below bars whose places are shares of the width.

import "./share-axis.css";
import { s } from "./dom";

export function shareAxis(whole: string): SVGElement {
  const ticks = [0, 25, 50, 75, 100].map((tick) => {
    const anchor = tick === 0 ? "start" : tick === 100 ? "end" : "middle";
    return s("text", { x: `${tick}%`, y: 14, "text-anchor": anchor }, `${tick}%`);
  });
  const label = s("text", { x: "50%", y: 32, "text-anchor": "middle" }, `share of ${whole}`);
  return s("svg", { class: "share-axis" }, ...ticks, label);
}
