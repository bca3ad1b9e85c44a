// Reads the page's data and shows it.

import "./style.css";
import { Shell } from "./shell";
import { embedded } from "./source";

async function start(): Promise<void> {
  const source = await embedded();
  const shell = new Shell(document.getElementById("app")!, source);
  for (const result of source.page.results) shell.add(result);
  shell.ready();
}

void start();
