// src/dom.ts
function e(e, n = {}, ...r) {
	return t(document.createElement(e), n, r);
}
function t(e, t, n) {
	for (let [n, r] of Object.entries(t)) typeof r == "function" ? e.addEventListener(n, r) : r === !0 ? e.setAttribute(n, "") : r !== !1 && e.setAttribute(n, String(r));
	for (let t of n) t != null && e.append(t);
	return e;
}
// src/blocks/findings.ts
function n(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/heat-map.ts
function r(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/knobs.ts
function i(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/lines.ts
function a(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/units.ts
var o = [
	["ns", 1],
	["us", 1e3],
	["ms", 1e6],
	["s", 1e9],
	["min", 6e10],
	["h", 36e11]
], s = [
	"",
	"k",
	"M",
	"G",
	"T",
	"P",
	"E",
	"Z"
], c = s.map((e, t) => [`${e}B`, 1e3 ** t]), l = s.map((e, t) => [`${e}FLOP`, 1e3 ** t]);
function u(e) {
	return h(e, o);
}
function d(e) {
	return h(e, c);
}
function f(e) {
	return e > .9995 && e < 1 ? ">99.9%" : Math.abs(e) > 0 && Math.abs(e) < 5e-4 ? e > 0 ? "<0.1%" : ">-0.1%" : `${(100 * e).toFixed(1)}%`;
}
function p(e, t) {
	return e === null ? "-" : typeof e == "boolean" ? e ? "yes" : "no" : typeof e == "string" ? e : t === "ns" ? u(e) : t === "bytes" ? d(e) : t === "flop" ? h(e, l) : t === "share" ? f(e) : t === "count" ? e.toLocaleString("en-US") : t === "rate" || t === "gbs" ? m(e) : String(Number.isInteger(e) ? e : Number(e.toPrecision(10)));
}
function m(e) {
	return e > 0 && e < .001 ? "<0.001" : e >= 1e3 ? Math.round(e).toLocaleString("en-US") : String(Number(e.toPrecision(3)));
}
function h(e, t) {
	let n = e < 0 ? "-" : "", r = Math.abs(e), [i] = t[0];
	if (r < 1e3) return `${n}${Math.round(r)} ${i}`;
	for (let [e, i] of t.slice(1)) {
		let t = g(r / i);
		if (t !== null) return `${n}${t} ${e}`;
	}
	let [a, o] = t[t.length - 1];
	return `${n}${Math.round(r / o)} ${a}`;
}
function g(e) {
	for (let t of [
		2,
		1,
		0
	]) if (Math.round(e * 10 ** t) < 1e3) return e.toFixed(t);
	return null;
}
// src/blocks/table.ts
function _(t) {
	let n = t.fields.flatMap((e, t) => e.shown ? [t] : []), r = n.map((n) => {
		let r = t.fields[n];
		return e("th", { scope: "col" }, r.label || r.name.replaceAll("_", " "));
	}), i = t.rows.map((r) => e("tr", {}, ...n.map((e) => v(r[e] ?? null, t.fields[e].unit))));
	return e("div", { class: "scroll" }, e("table", {}, e("thead", {}, e("tr", {}, ...r)), e("tbody", {}, ...i)));
}
function v(t, n) {
	return e("td", { class: typeof t == "number" ? "number" : "" }, p(t, n));
}
// src/blocks/pairs.ts
function y(t) {
	return e("dl", {}, ...t.items.filter((e) => e.shown).flatMap((t) => [e("dt", {}, t.label || t.name), e("dd", {}, x(t))]));
}
function b(t) {
	return e("div", {}, y(t), _(t.table));
}
function x(e) {
	return (Array.isArray(e.value) ? e.value : [e.value]).map((t) => p(t, e.unit)).join(", ") || "-";
}
// src/blocks/plot.ts
function S(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/portions.ts
function C(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/spans.ts
function w(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/stacks.ts
function T(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/strips.ts
function E(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/timeline.ts
function D(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/waterfall.ts
function O(t) {
	return e("p", { class: "muted" }, `${t.kind} is not drawn yet.`);
}
// src/blocks/index.ts
var k = {
	Findings: n,
	HeatMap: r,
	Knobs: i,
	Lines: a,
	Pairs: y,
	Plot: S,
	Portions: C,
	Section: b,
	Spans: w,
	Stacks: T,
	Strips: E,
	Table: _,
	Timeline: D,
	Waterfall: O
};
function A(t, n) {
	let r = k[t.kind](t, n), i = t.title ? e("h3", {}, t.title) : null;
	return e("section", {
		class: `block ${t.kind}`,
		"data-block": t.name
	}, i, r);
}
// src/source.ts
async function j() {
	return M([...document.querySelectorAll("script.data")].map((e) => e.textContent ?? ""));
}
async function M(e) {
	let [t, ...n] = await Promise.all(e.map(N));
	return {
		page: JSON.parse(new TextDecoder().decode(t)),
		numbers: (e) => P(n[e.blob], e.type)
	};
}
async function N(e) {
	let t = Uint8Array.from(atob(e), (e) => e.charCodeAt(0)), n = new Blob([t]).stream().pipeThrough(new DecompressionStream("deflate"));
	return new Uint8Array(await new Response(n).arrayBuffer());
}
function P(e, t) {
	if (t === "u1") return e;
	let n = e.buffer;
	return t === "u4" ? new Uint32Array(n) : new Float64Array(n);
}
// src/main.ts
async function F() {
	let t = document.getElementById("app"), n = await j();
	t.append(e("h1", {}, n.page.title), ...n.page.results.map((e) => I(e, { source: n }))), document.documentElement.dataset.ready = "yes";
}
function I(t, n) {
	return e("article", { id: t.name }, e("h2", {}, t.title), e("p", { class: "verdict" }, t.verdict), ...t.blocks.map((e) => A(e, n)), ...t.notes.map((t) => e("p", { class: "note" }, t)));
}
F();
