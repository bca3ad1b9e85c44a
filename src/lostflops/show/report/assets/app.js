function e(e, t = {}, ...r) {
	return n(document.createElement(e), t, r);
}
function t(e, t = {}, ...r) {
	return n(document.createElementNS("http://www.w3.org/2000/svg", e), t, r);
}
function n(e, t, n) {
	for (let [n, r] of Object.entries(t)) typeof r == "function" ? e.addEventListener(n, r) : r === !0 ? e.setAttribute(n, "") : r !== !1 && e.setAttribute(n, String(r));
	for (let t of n) t != null && e.append(t);
	return e;
}
// src/glossary.ts
var r = /[\p{L}\p{N}][\p{L}\p{N}_./-]*[\p{L}\p{N}]/gu, i = /[A-Z.\d]|^[^aeiouy]+$/, a = /(\d[\d.,]{0,11} (?:[num]?s|min|h|[kMGTP]?B|GB\/s|[GTP]?FLOPS?)\b|(?<!\S)--[\w-]{0,24}(?![\w-]))/, o = {}, s = null, c = e("div", {
	id: "meaning",
	role: "tooltip",
	hidden: !0
});
function l(e) {
	o = {
		...o,
		...e
	};
}
function u(e) {
	return Object.hasOwn(o, e) ? o[e] : void 0;
}
function d() {
	return Object.entries(o).sort(([e], [t]) => e.localeCompare(t));
}
function f(t) {
	return u(t) === void 0 ? t : e("span", {
		class: "term",
		tabindex: 0,
		"data-term": t
	}, t);
}
function p(e) {
	return u(e) === void 0 ? m(e) : [f(e)];
}
function ee(e) {
	let t = (e.match(r) ?? []).filter((e) => i.test(e));
	return [
		e,
		e.replace(/ [^ ]+$/, ""),
		...t
	].find((e) => u(e) !== void 0);
}
function m(e) {
	let t = /* @__PURE__ */ new Set();
	return h(e, (e) => i.test(e) && !t.has(e) && !!t.add(e));
}
function h(e, t) {
	let n = [], i = 0;
	for (let a of e.matchAll(r)) u(a[0]) !== void 0 && t(a[0]) && (n.push(...g(e.slice(i, a.index)), f(a[0])), i = a.index + a[0].length);
	return [...n, ...g(e.slice(i))];
}
function g(t) {
	return t.split(a).map((t, n) => n % 2 ? e("span", { class: "unbroken" }, t) : t);
}
function _() {
	document.body.append(c), document.addEventListener("mouseover", (e) => v(e.target)), document.addEventListener("focusin", (e) => v(e.target)), document.addEventListener("scroll", ne, {
		passive: !0,
		capture: !0
	}), document.addEventListener("keydown", (e) => {
		e.key === "Escape" && re();
	});
}
function v(e) {
	let t = e instanceof Element ? e.closest("[data-term]") : null, n = u(t?.dataset.term ?? "");
	!t || n === void 0 ? s !== document.activeElement && re() : ((t.closest("dialog") ?? document.body).append(c), c.textContent = n, c.hidden = !1, t.setAttribute("aria-describedby", c.id), s = t, te(t));
}
function te(e) {
	let t = e.getBoundingClientRect(), n = Math.max(8, Math.min(t.left, innerWidth - c.offsetWidth - 8)), r = t.bottom + 6 + c.offsetHeight < innerHeight;
	c.style.setProperty("left", `${n}px`), c.style.setProperty("top", `${r ? t.bottom + 6 : t.top - c.offsetHeight - 6}px`);
}
function ne() {
	s && s === document.activeElement && !c.hidden ? te(s) : re();
}
function re() {
	c.hidden = !0;
}
// src/rounding.ts
function ie(e) {
	let [t, n] = [e, 0];
	for (; !Number.isInteger(t); n++) t *= 2;
	return [BigInt(t), 2n ** BigInt(n)];
}
function y(e, t) {
	let [n, r] = [e / t, e % t * 2n];
	return r > t || r === t && n % 2n == 1n ? n + 1n : n;
}
function b(e, t) {
	let [n, r] = ie(Math.abs(e));
	return C(e, S(y(n * 10n ** BigInt(t), r), t));
}
function ae(e, t) {
	if (e === 0) return C(e, "0");
	let [n, r] = ie(Math.abs(e)), i = Number(e.toExponential().split("e")[1]), a = oe(n, r, t - 1 - i);
	if (a === 10n ** BigInt(t) && ([a, i] = [a / 10n, i + 1]), i >= -4 && i < t) return C(e, se(S(a, t - 1 - i)));
	let o = `${i < 0 ? "-" : "+"}${String(Math.abs(i)).padStart(2, "0")}`;
	return C(e, `${se(S(a, t - 1))}e${o}`);
}
function x(e) {
	return e.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}
function S(e, t) {
	let n = e.toString().padStart(t + 1, "0");
	return t ? `${n.slice(0, -t)}.${n.slice(-t)}` : n;
}
function oe(e, t, n) {
	let r = 10n ** BigInt(Math.abs(n));
	return n < 0 ? y(e, t * r) : y(e * r, t);
}
function se(e) {
	return e.includes(".") ? e.replace(/\.?0+$/, "") : e;
}
function C(e, t) {
	return e < 0 || Object.is(e, -0) ? `-${t}` : t;
}
// src/units.ts
var ce = 8, le = [
	["ns", 1n],
	["us", 1000n],
	["ms", 1000000n],
	["s", 1000000000n],
	["min", 60000000000n],
	["h", 3600000000000n]
], ue = [
	"",
	"k",
	"M",
	"G",
	"T",
	"P",
	"E",
	"Z"
], de = Se("B"), fe = Se("FLOP"), pe = [
	"ns",
	"bytes",
	"flop",
	"count",
	"time"
], me = /(?! )[\p{C}\p{Z}]/gu, he = {
	"\n": "\\n",
	"\r": "\\r",
	"	": "\\t"
}, ge = /^-?\d{16,}$/, _e = /^\d+%$/;
function w(e) {
	return A(Ce(e), le);
}
function T(e) {
	return A(Ce(e), de);
}
function E(e) {
	return e > .9995 && e < 1 ? ">99.9%" : Math.abs(e) > 0 && Math.abs(e) < 5e-4 ? e > 0 ? "<0.1%" : "0.0%" : `${b(100 * e, 1)}%`;
}
function D(e) {
	return e >= .995 && e < 1 ? ">99%" : e === 0 || Math.abs(e) >= .0095 ? `${b(100 * e, 0)}%` : E(e);
}
function ve(e, t) {
	let [n, r] = [D(e), D(t)];
	return `${[n, r].every((e) => _e.test(e)) ? n.slice(0, -1) : n} to ${r}`;
}
function O(e, t) {
	return e === null ? "-" : typeof e == "boolean" ? e ? "yes" : "no" : typeof e == "string" ? pe.includes(t) && ge.test(e) ? be(BigInt(e), t) : ye(e) : Number.isFinite(e) ? pe.includes(t) ? be(Ce(e), t) : t === "share" ? E(e) : t === "rate" || t === "gbs" ? xe(e) : Number.isSafeInteger(e) && !Object.is(e, -0) ? String(e) : ae(e, 10) : "-";
}
function k(e, t) {
	let n = [];
	for (let t of e) {
		let e = n[n.length - 1], r = e?.[e.length - 1];
		e && Number.isInteger(t) && Number.isInteger(r) && t === r + 1 ? e.push(t) : n.push([t]);
	}
	let r = n.map((e) => e.length > 1 ? `${O(e[0], t)}-${O(e[e.length - 1], t)}` : O(e[0], t));
	return r.length > ce && r.splice(ce, Infinity, `... ${x(String(e.length))} in all`), r.join(", ") || "-";
}
function ye(e) {
	return e.replace(me, (e) => {
		let t = e.codePointAt(0), [n, r] = t < 256 ? ["x", 2] : t < 65536 ? ["u", 4] : ["U", 8];
		return he[e] ?? `\\${n}${t.toString(16).padStart(r, "0")}`;
	});
}
function be(e, t) {
	return t === "ns" ? A(e, le) : t === "bytes" ? A(e, de) : t === "flop" ? A(e, fe) : x(e.toString());
}
function xe(e) {
	return e > 0 && e < .001 ? "<0.001" : e >= 1e3 ? x(b(e, 0)) : ae(e, 3);
}
function Se(e) {
	return ue.map((t, n) => [`${t}${e}`, 1000n ** BigInt(n)]);
}
function Ce(e) {
	return typeof e == "bigint" ? e : BigInt(Number.isInteger(e) ? e : b(e, 0));
}
function A(e, t) {
	let n = e < 0n ? "-" : "", r = e < 0n ? -e : e;
	if (r < 1000n) return `${n}${r} ${t[0][0]}`;
	for (let [e, i] of t.slice(1)) {
		let t = we(r, i);
		if (t !== null) return `${n}${t} ${e}`;
	}
	let [i, a] = t[t.length - 1];
	return `${n}${y(r, a)} ${i}`;
}
function we(e, t) {
	for (let n of [
		2,
		1,
		0
	]) {
		let r = y(e * 10n ** BigInt(n), t);
		if (r < 1000n) return S(r, n);
	}
	return null;
}
// src/blocks/evidence.ts
var Te = "lostflops:show", Ee = 12;
function De(t) {
	return t.length ? e("details", { class: "evidence" }, e("summary", {}, `Evidence (${t.length})`), e("ul", {}, ...t.map(Oe))) : null;
}
function Oe(t) {
	return e("li", {}, ...m(t.what), e("div", { class: "where" }, ...ke(t), ...Ae(t), ...je(t)));
}
function ke(e) {
	let t = [e.ranks.length ? `${e.ranks.length > 1 ? "ranks" : "rank"} ${k(e.ranks, "")}` : "", e.steps.length ? `${e.steps.length > 1 ? "steps" : "step"} ${k(e.steps, "")}` : ""].filter(Boolean), [n] = e.ranks;
	if (n === void 0) return t;
	let [r, i] = [Math.min(...e.steps), Math.max(...e.steps)], a = e.steps.length ? i > r ? {
		step: r,
		last: i
	} : { step: r } : {};
	return [Me(t.join(", "), {
		rank: n,
		...a
	})];
}
function Ae(e) {
	let t = e.events.length - Ee, n = e.events.slice(0, Ee).map(([e, t]) => Me(`event ${t} of rank ${e}`, {
		rank: e,
		event: t
	}));
	return t > 0 ? [...n, `and ${t.toLocaleString("en-US")} more ${t === 1 ? "event" : "events"}`] : n;
}
function je(t) {
	return t.sources.map((t) => e("code", {}, t));
}
function Me(t, n) {
	return e("button", {
		type: "button",
		class: "link",
		title: "Show on the timeline",
		click: () => document.dispatchEvent(new CustomEvent(Te, { detail: n }))
	}, t);
}
// src/blocks/findings.ts
var Ne = .005;
function Pe(t) {
	if (!t.items.length) return e("p", { class: "calm" }, "No cause was found.");
	let n = Ue(t.items.filter(Le).flatMap((e) => e.prediction ?? [])), r = t.most_shown ?? t.items.length, i = t.items.map((t, i) => e("li", {}, Fe(t, i < r, n))), a = i.slice(r);
	return e("div", { class: "findings" }, e("ol", {}, ...i.slice(0, r)), a.length ? e("details", { class: "more" }, e("summary", {}, `${a.length} more`), e("ol", {}, ...a)) : null);
}
function Fe(t, n, r) {
	let i = [
		["Saves", m(ze(t))],
		["But", t.doubt ? m(He(t)) : []],
		["Fix", [e("span", { class: "fix" }, ...m(t.fix))]],
		["Ranks", t.ranks.length ? [k(t.ranks, "")] : []],
		["To confirm", t.certain_if ? m(t.certain_if) : []]
	].filter(([, e]) => e.length);
	return e("details", {
		class: "finding",
		"data-cause": t.cause,
		open: n
	}, e("summary", {}, e("span", { class: "what" }, e("span", { class: "cause" }, Ie(t)), ...g(t.what)), Le(t) && t.prediction ? We(t.prediction, r) : e("span", { class: "gain" }, `saves ${Re(t)}`)), e("dl", {}, ...i.flatMap(([t, n]) => [e("dt", {}, t), e("dd", {}, ...n)])), De(t.evidence));
}
function Ie(e) {
	let t = e.cause.replaceAll("_", " ");
	return e.level === "suspected" ? `suspected: ${t}` : t;
}
function Le(e) {
	let t = e.prediction;
	return t !== null && !t.is_bound && t.gain_low > 0;
}
function Re(e) {
	let t = e.prediction;
	return t === null || t.gain_high <= 0 ? "no time yet" : t.is_bound ? `at most ${D(t.gain)} of the step` : t.gain_low <= 0 ? `up to ${D(t.gain_high)} of the step, and may be zero` : `${D(t.gain)} of the step (90% interval ${ve(t.gain_low, t.gain_high)})`;
}
function ze(e) {
	let t = e.prediction;
	if (t === null || t.gain_high <= 0) return Re(e);
	let n = t.is_bound || t.gain_low > 0 ? [Be(t), Ve(e)] : [];
	return `${[Re(e), ...n].filter(Boolean).join(", ")}; based on ${t.basis}`;
}
function Be({ gain: e, measured_ns: t, predicted_ns: n }) {
	return !t || n === null || Math.abs(1 - n / t - e) >= Ne ? "" : `from ${w(t)} to ${w(n)}`;
}
function Ve(e) {
	let t = e.usd === null ? "" : ` ($${x(b(e.usd, 0))})`;
	return `${x(b(e.rank_hours, 1))} rank-hours a day${t}`;
}
function He(e) {
	let t = /--steps \d+:(\d+)/.exec(e.record), n = t ? `Record ${t[1]} steps` : "Record with";
	return e.record ? `${e.doubt} ${n}: lostflops run ${e.record} -- COMMAND` : e.doubt;
}
function Ue(e) {
	return [Math.min(0, ...e.map((e) => e.gain_low)), Math.max(.01, ...e.map((e) => e.gain_high))];
}
function We(n, [r, i]) {
	let a = (e) => `${100 * (e - r) / (i - r)}%`, o = `${100 * (n.gain_high - n.gain_low) / (i - r)}%`, s = t("svg", {
		class: "range",
		role: "img",
		"aria-label": `saves ${ve(n.gain_low, n.gain_high)} of the step (90% interval)`
	}, t("rect", {
		class: "interval",
		x: a(n.gain_low),
		width: o,
		y: 4,
		height: 14,
		rx: 2
	}), t("line", {
		class: "scale",
		x1: 0,
		x2: "100%",
		y1: 18,
		y2: 18
	}), t("line", {
		class: "zero",
		x1: a(0),
		x2: a(0),
		y1: 2,
		y2: 22
	}), t("line", {
		class: "best",
		x1: a(n.gain),
		x2: a(n.gain),
		y1: 2,
		y2: 20
	}), r < 0 && -r / (i - r) > .25 ? t("text", {
		x: 0,
		y: 33
	}, D(r)) : null, t("text", {
		x: a(0),
		y: 33,
		"text-anchor": r < 0 ? "middle" : "start"
	}, "0%"), t("text", {
		x: "100%",
		y: 33,
		"text-anchor": "end"
	}, D(i)));
	return e("span", { class: "gain" }, "saves ", e("b", {}, D(n.gain)), " of the step", s);
}
// src/callout.ts
var j = 14;
function M() {
	let t = e("div", {
		class: "callout",
		role: "status",
		hidden: !0
	});
	return {
		element: t,
		show: (n, r, i, a) => {
			let o = a.flatMap(([t, n]) => [e("dt", {}, t), e("dd", {}, n)]);
			t.replaceChildren(e("strong", {}, i), e("dl", {}, ...o)), t.hidden = !1;
			let s = t.parentElement.clientWidth, c = n + j + t.offsetWidth <= s ? n + j : n - j - t.offsetWidth;
			t.style.setProperty("left", `${Math.max(0, Math.min(c, s - t.offsetWidth))}px`), t.style.setProperty("top", `${Math.round(r + j)}px`);
		},
		hide: () => void (t.hidden = !0)
	};
}
function N(e) {
	return (t) => t.pointerType !== "touch" && e();
}
// src/heat-cells.ts
var Ge = 2 ** 32 - 1, Ke = class {
	block;
	low;
	high;
	unknown;
	numbers;
	constructor(e, t) {
		this.block = e, this.numbers = t.numbers(e.values);
		let [n, r, i] = [
			Infinity,
			-Infinity,
			0
		];
		e.rows.forEach((t, a) => {
			for (let t = 0; t < e.widths[a]; t++) {
				let e = this.at(a, t);
				typeof e == "number" ? [n, r] = [Math.min(n, e), Math.max(r, e)] : i++;
			}
		}), this.low = Math.min(0, n), this.high = Math.max(r, this.low), this.unknown = i;
	}
	at(e, t) {
		if (t >= (this.block.widths[e] ?? 0)) return;
		let n = this.numbers[e * this.block.places + t];
		return this.block.values.type === "u4" ? n === Ge ? null : n + this.block.least : Number.isNaN(n) ? null : n;
	}
	share(e) {
		return this.high > this.low ? (e - this.low) / (this.high - this.low) : 0;
	}
	most(e, t) {
		let n;
		for (let r = e[0]; r < e[1]; r++) for (let e = t[0]; e < t[1]; e++) {
			let t = this.at(r, e);
			t !== void 0 && (n == null || t !== null && t > n) && (n = t);
		}
		return n;
	}
}, qe = {
	compute: "--compute",
	"comm.transfer": "--transfer",
	"comm.wait": "--wait",
	"comm.bubble": "--bubble",
	copy: "--copy",
	"idle.data": "--data",
	"idle.sync": "--idle-sync",
	"idle.alloc": "--idle-alloc",
	"idle.compile": "--idle-compile",
	"idle.python": "--idle-python",
	"idle.dependency": "--idle-dependency",
	"idle.bubble": "--idle-bubble",
	unexplained: "--unexplained"
}, Je = {
	parameters: "#009e73",
	gradients: "#cc79a7",
	optimizer_state: "#0072b2",
	buffers: "#882255",
	activations: "#d55e00",
	temporaries: "#e69f00",
	communication: "#56b4e9",
	batches: "#f0e442",
	unattributed: "#7f7f7f"
}, Ye = [
	"#0072b2",
	"#e69f00",
	"#009e73",
	"#cc79a7",
	"#56b4e9",
	"#d55e00",
	"#f0e442",
	"#7f7f7f"
], Xe = "lostflops-theme", Ze = /* @__PURE__ */ new Map();
function Qe(e) {
	let t = nt(e);
	return t ? F(t) : tt(e);
}
function P(e) {
	let t = nt(e);
	return t ? `var(${t})` : tt(e);
}
function F(e) {
	let t = Ze.get(e);
	if (t === void 0) {
		let n = document.createElement("i");
		n.style.setProperty("color", `var(${e})`), document.documentElement.append(n), t = getComputedStyle(n).color, n.remove(), Ze.set(e, t);
	}
	return t;
}
function $e(e) {
	document.addEventListener(Xe, e);
}
function et() {
	Ze.clear(), document.dispatchEvent(new Event(Xe));
}
function tt(e) {
	return Object.hasOwn(Je, e) ? Je[e] : Ye[rt(e) % Ye.length];
}
function nt(e) {
	return Object.hasOwn(qe, e) ? qe[e] : e.startsWith("idle.") ? "--idle" : void 0;
}
function rt(e) {
	let t = 0;
	for (let n = 0; n < e.length; n++) t = t * 31 + e.charCodeAt(n) >>> 0;
	return t;
}
// src/fitted.ts
function I(t, n) {
	let r = e("div", { class: t }), i = 0;
	return new ResizeObserver(() => {
		requestAnimationFrame(() => {
			let e = Math.floor(r.clientWidth);
			e && e !== i && n(i = e, r);
		});
	}).observe(r), r;
}
var L = class {
	element = e("canvas", { tabindex: 0 });
	pen = this.element.getContext("2d");
	kept = null;
	constructor(e) {
		$e(() => this.element.isConnected && e());
	}
	get density() {
		return Math.max(1, window.devicePixelRatio || 1);
	}
	resize(e, t) {
		this.element.width = Math.round(e * this.density), this.element.height = Math.round(t * this.density), this.element.style.setProperty("width", `${e}px`), this.element.style.setProperty("height", `${t}px`), this.pen.setTransform(this.density, 0, 0, this.density, 0, 0);
	}
	keep() {
		this.kept = new OffscreenCanvas(this.element.width, this.element.height), this.kept.getContext("2d").drawImage(this.element, 0, 0);
	}
	restore() {
		this.pen.save(), this.pen.resetTransform(), this.pen.clearRect(0, 0, this.element.width, this.element.height), this.kept && this.pen.drawImage(this.kept, 0, 0), this.pen.restore();
	}
}, it = 8;
function at(e) {
	return `--series-${e % it}`;
}
function ot(e) {
	return `var(${at(e)})`;
}
function st(e) {
	let [t, n, r] = ct(e);
	return .299 * t + .587 * n + .114 * r > 140 ? "#000000" : "#ffffff";
}
function ct(e) {
	let t = /^#(..)(..)(..)$/.exec(e), n = t ? t.slice(1).map((e) => parseInt(e, 16)) : (e.match(/[\d.]+/g) ?? []).map(Number);
	return [
		n[0] ?? 0,
		n[1] ?? 0,
		n[2] ?? 0
	];
}
// src/ramp.ts
var R = [
	"#00204d",
	"#00336f",
	"#39486b",
	"#575c6d",
	"#707173",
	"#8a8779",
	"#a69d75",
	"#c4b56c",
	"#e4cf5b",
	"#ffea46"
].map(ct), z = (/* @__PURE__ */ new Uint8Array(768)).map((e, t) => {
	let n = Math.floor(t / 3) / 255 * (R.length - 1), r = Math.min(Math.floor(n), R.length - 2), [i, a] = [R[r]?.[t % 3] ?? 0, R[r + 1]?.[t % 3] ?? 0];
	return Math.round(i + (n - r) * (a - i));
});
function lt(e, t, n) {
	let r = dt(n);
	e[t] = z[r], e[t + 1] = z[r + 1], e[t + 2] = z[r + 2], e[t + 3] = 255;
}
function ut(e) {
	let t = dt(e);
	return `rgb(${z.slice(t, t + 3).join(", ")})`;
}
function dt(e) {
	return 3 * Math.round(Math.max(0, Math.min(1, e)) * 255);
}
function ft(e, t, n, r, i) {
	e.save(), e.beginPath(), e.rect(t, n, r, i), e.clip(), e.fillStyle = F("--card"), e.fillRect(t, n, r, i), e.strokeStyle = F("--muted"), e.globalAlpha = .55, e.beginPath();
	for (let a = Math.floor((t - i) / 5) * 5; a < t + r; a += 5) e.moveTo(a, n + i), e.lineTo(a + i, n);
	e.stroke(), e.restore();
}
// src/heat-painting.ts
var pt = 720, mt = 26, ht = 76, gt = "12px system-ui, sans-serif", _t = 18, B = 18, vt = 40, yt = 1.3, bt = 4, xt = 15, St = 56, Ct = /^\d+$/, wt = class {
	block;
	cells;
	surface = new L(() => this.paint());
	marked = null;
	left = 0;
	top = 0;
	size = [0, 0];
	across = 0;
	down = 0;
	every = 1;
	nameLines = 1;
	constructor(e, t) {
		this.block = e, this.cells = t;
	}
	get element() {
		return this.surface.element;
	}
	draw(e) {
		let { rows: t, places: n } = this.block, r = this.surface.pen;
		r.font = gt;
		let i = this.labels(t, t.length).map((e) => r.measureText(t[e]).width);
		this.left = Math.min(Math.ceil(Math.max(...i)) + 8, Math.floor(e * .35)), this.size = [Math.min(ht, (e - this.left) / n), Math.min(mt, pt / t.length)], this.across = Math.round(this.size[0] * n), this.down = Math.max(1, Math.round(this.size[1] * t.length)), this.top = (this.block.down ? B : 0) + Math.max(0, Math.round((_t - this.size[1]) / 2));
		let a = this.block.columns?.length, o = [this.block.down ?? "", this.block.across ?? ""].map((e) => Math.ceil(r.measureText(e).width)), s = Math.min(e, Math.max(this.left + this.across + (a ? vt : 2), ...o));
		this.every = this.namedEvery(), this.nameLines = this.every <= bt && !this.block.columns?.every((e) => Ct.test(e)) ? this.every : 1;
		let c = a ? 7 + xt * this.nameLines : 8;
		this.surface.resize(s, this.top + this.down + c + (this.block.across ? B : 0)), this.paint();
	}
	paint() {
		let { pen: e, element: t } = this.surface;
		e.clearRect(0, 0, t.width, t.height), this.colours(), e.font = gt, e.textBaseline = "middle", e.fillStyle = F("--muted"), this.rowNames(), this.columnNames(), this.titles(), this.size[0] >= St && this.size[1] >= _t && this.values(), this.surface.keep(), this.mark(this.marked);
	}
	mark(e) {
		this.marked = e, this.surface.restore(), e && this.outline(e);
	}
	colours() {
		let { rows: e, places: t } = this.block, { pen: n, density: r } = this.surface, i = Math.min(t, Math.round(this.across * r)), a = Math.min(e.length, Math.round(this.down * r)), o = new ImageData(i, a), s = [];
		for (let n = 0; n < a; n++) for (let r = 0; r < i; r++) {
			let c = this.cells.most(Tt(n, a, e.length), Tt(r, i, t));
			c === null && s.push([r, n]), typeof c == "number" && lt(o.data, 4 * (n * i + r), this.cells.share(c));
		}
		let c = new OffscreenCanvas(i, a);
		c.getContext("2d").putImageData(o, 0, 0), n.imageSmoothingEnabled = !1, n.drawImage(c, this.left, this.top, this.across, this.down);
		let [l, u] = [this.across / i, this.down / a];
		if (l >= 4 && u >= 4) for (let [e, t] of s) ft(n, this.left + e * l, this.top + t * u, l, u);
		else {
			n.fillStyle = F("--idle");
			for (let [e, t] of s) n.fillRect(this.left + e * l, this.top + t * u, l, u);
		}
	}
	cellAt(e, t) {
		let [n, r] = [Math.floor((t - this.top) / this.size[1]), Math.floor((e - this.left) / this.size[0])];
		return r >= 0 && n >= 0 && this.cells.at(n, r) !== void 0 ? [n, r] : null;
	}
	pointOf([e, t]) {
		return [this.left + (t + .5) * this.size[0], this.middle(e)];
	}
	middle(e) {
		return this.top + (e + .5) * this.size[1];
	}
	labels(e, t) {
		let n = Math.ceil(_t * t / Math.max(1, this.down || pt));
		return e.map((e, t) => t).filter((e) => e % n === 0);
	}
	rowNames() {
		let e = this.surface.pen;
		e.textAlign = "right";
		for (let t of this.labels(this.block.rows, this.block.rows.length)) e.fillText(this.block.rows[t], this.left - 6, this.middle(t), this.left - 6);
	}
	namedEvery() {
		let { pen: e } = this.surface, t = Math.max(24, ...(this.block.columns ?? []).map((t) => e.measureText(t).width + 10));
		return Math.max(1, Math.ceil(t / yt / this.size[0]));
	}
	columnNames() {
		let { pen: e, element: t, density: n } = this.surface, r = this.every * this.size[0] - 4;
		e.textAlign = "center", e.strokeStyle = F("--rule"), (this.block.columns ?? []).forEach((i, a) => {
			let o = a % this.every;
			if (o >= this.nameLines) return;
			let [s, c] = [this.left + (a + .5) * this.size[0], this.top + this.down + 12 + xt * o], l = Math.min(r, e.measureText(i).width) / 2;
			o && this.stem(s, c - 7), e.fillText(i, Math.max(l, Math.min(s, t.width / n - l)), c, r);
		});
	}
	titles() {
		let { pen: e, element: t, density: n } = this.surface, [r, i] = [t.width / n, t.height / n], { down: a, across: o } = this.block;
		e.fillStyle = F("--text"), e.textAlign = "left", a && e.fillText(a, 0, B / 2, r), e.textAlign = "right";
		let s = Math.max(this.left + this.across, e.measureText(o ?? "").width);
		o && e.fillText(o, Math.min(r, s), i - B / 2, r);
	}
	stem(e, t) {
		let { pen: n } = this.surface;
		n.beginPath(), n.moveTo(e, this.top + this.down), n.lineTo(e, t), n.stroke();
	}
	values() {
		let e = this.surface.pen;
		e.textAlign = "center", this.block.rows.forEach((t, n) => {
			for (let t = 0; t < this.block.widths[n]; t++) {
				let r = this.cells.at(n, t);
				if (typeof r != "number") continue;
				e.fillStyle = st(ut(this.cells.share(r)));
				let i = O(r, this.block.unit);
				e.fillText(i, this.left + (t + .5) * this.size[0], this.middle(n), this.size[0] - 4);
			}
		});
	}
	outline(e) {
		let t = this.surface.pen, [n, r] = [Math.max(4, this.size[0]), Math.max(4, this.size[1])], [i, a] = this.pointOf(e);
		t.strokeStyle = F("--text"), t.lineWidth = 3, t.strokeRect(i - n / 2, a - r / 2, n, r), t.strokeStyle = F("--page"), t.lineWidth = 1, t.strokeRect(i - n / 2, a - r / 2, n, r);
	}
};
function Tt(e, t, n) {
	return [Math.floor(e * n / t), Math.floor((e + 1) * n / t)];
}
// src/axes.ts
var Et = 8, Dt = .03, Ot = 1e100, kt = 1e-9, At = 1e24, jt = 3, Mt = 15, Nt = {
	ns: 1,
	us: 1e3,
	ms: 1e6,
	s: 1e9,
	min: 6e10,
	h: 36e11
}, Pt = "kMGTPEZ", Ft = {
	gbs: "GB/s",
	rate: "per s"
};
function It(e, t) {
	let n = e.log ? Math.log10 : (e) => e;
	return (n(t) - n(e.low)) / (n(e.high) - n(e.low));
}
function V(e, t) {
	let n = e.own.length && e.own.length <= t ? e.own : e.log ? qt(e, t) : Xt(e, t), r = n.filter((t) => e.low <= t && t <= e.high), [i, a] = Jt(e), o = Yt(n.map((e) => e / i)), s = (t) => a && t ? `${U(t / i, o)} ${a}` : Bt(t, e.unit, o);
	return r.map((e) => ({
		value: e,
		label: s(e)
	}));
}
function Lt(e, t, n) {
	let r = [...new Set(t)].sort((e, t) => e - t), [i, a] = n ? Gt(r) : Kt(r), o = (e.unit === "" || e.unit === "count") && r.length <= Et ? r : [];
	return {
		unit: e.unit,
		title: Ht(e),
		log: n,
		low: i,
		high: a,
		own: o
	};
}
function H(e, t, n) {
	return Rt(e, t, 0, n > 0 ? n : 1);
}
function Rt(e, t, n, r) {
	return {
		unit: e,
		title: t,
		log: !1,
		low: n,
		high: r,
		own: []
	};
}
function zt(e, t) {
	return e !== null && Math.abs(e) <= Ot && (!t || e >= 1 / Ot);
}
function Bt(e, t, n = jt) {
	if (Math.abs(e) >= At) return e.toExponential(2);
	if (t === "share") return `${U(100 * e, n)}%`;
	if (t === "" || t === "count") return Ut(e, n);
	if (t !== "ns" && t !== "bytes" && t !== "flop") return U(e, n);
	if (Math.abs(e) < 1) return t === "ns" && e ? `${U(e, n)} ns` : U(e, n);
	let r = O(e, t).split(" ")[1];
	return `${U(e / Wt(r, t), n)} ${r}`;
}
function Vt(e, t) {
	let n = Ft[t.unit];
	return O(e, t.unit) + (n ? ` ${n}` : "");
}
function Ht(e) {
	let t = e.label || e.name.replaceAll("_", " "), n = Ft[e.unit];
	return n && !t.includes(n) ? `${t} (${n})` : t;
}
function Ut(e, t) {
	return Number.isInteger(e) && Math.abs(e) < 1e5 ? String(e) : Math.abs(e) < 1e3 ? U(e, t) : Bt(e, "flop", t).replace("FLOP", "");
}
function Wt(e, t) {
	return t === "ns" ? Nt[e] : 1e3 ** (Pt.indexOf(e[0]) + 1);
}
function U(e, t) {
	return String(Number(e.toPrecision(t)));
}
function Gt(e) {
	let [t, n] = [e[0], e[e.length - 1]], r = n > t * 1.000000001 ? (n / t) ** Dt : 2;
	return [t / r, n * r];
}
function Kt(e) {
	let [t, n] = [e[0], e[e.length - 1]], r = t >= 0 && t <= n / 2, i = n - t > Math.max(kt * Math.max(Math.abs(t), Math.abs(n)), 1 / Ot), a = Math.abs(n) > kt ? .5 * Math.abs(n) : 1, o = i ? (n - t) * Dt : a;
	return [r ? 0 : t - o, n + o];
}
function qt(e, t) {
	let n = Math.floor(Math.log10(e.low)), r = Array.from({ length: Math.ceil(Math.log10(e.high)) - n + 1 }, (e, t) => n + t), i = (t) => t.filter((t) => e.low <= t && t <= e.high), a = i(r.map((e) => Number(`1e${e}`)));
	if (a.length > 2) {
		let e = Math.ceil(a.length / t);
		return a.filter((t, n) => n % e === 0);
	}
	let o = i(r.flatMap((e) => [
		1,
		2,
		5
	].map((t) => Number(`${t}e${e}`))));
	return o.length >= 2 && o.length <= t ? o : Xt(e, t);
}
function Jt(e) {
	if (e.log || e.unit !== "ns" || e.high < 0xe8d4a51000) return [1, ""];
	let t = e.high - e.low;
	return t >= 6e13 ? [36e11, "h"] : t >= 0xe8d4a51000 ? [6e10, "min"] : [1e9, "s"];
}
function Yt(e) {
	let t = (e) => Math.floor(Math.log10(e) + kt), n = Math.min(...e.slice(1).map((t, n) => t - e[n])), r = Math.max(...e.map(Math.abs));
	return e.length < 2 ? jt : Math.min(Mt, Math.max(jt, t(r) - t(n) + 1));
}
function Xt(e, t) {
	let [n] = Jt(e), [r, i] = [e.low / n, e.high / n], a = (i - r) / Math.max(t, 1), o = 10 ** Math.floor(Math.log10(a)), s = o * ([
		1,
		2,
		5,
		10
	].find((e) => o * e >= a * (1 - 1e-9)) ?? 10), c = Math.ceil(r / s - 1e-9) - 1, l = Math.floor(i / s + 1e-9) - c + 2;
	return Array.from({ length: l }, (e, t) => Number(((c + t) * s * n).toPrecision(Mt)));
}
// src/scale.ts
var Zt = 240, Qt = 30;
function $t(t, n) {
	let r = `from ${O(n.low, t)} to ${O(n.high, t)}`, i = n.unknown ? e("span", {}, tn(), ` no value (${n.unknown.toLocaleString("en-US")})`) : null;
	return e("div", { class: "scale" }, en(t, n, r), e("span", {}, r), i);
}
function en(e, t, n) {
	let r = {
		...H(e, "", t.high),
		low: t.low
	}, i = new L(() => a()), a = () => {
		let { pen: e } = i;
		i.resize(300, 34);
		for (let t = 0; t < Zt; t++) e.fillStyle = ut(t / 239), e.fillRect(Qt + t, 0, 1, 12);
		e.font = "12px system-ui, sans-serif", e.textAlign = "center", e.fillStyle = F("--muted");
		for (let { value: t, label: n } of V(r, 4)) e.fillText(n, Qt + It(r, t) * Zt, 28);
	};
	return a(), i.element.removeAttribute("tabindex"), i.element.setAttribute("role", "img"), i.element.setAttribute("aria-label", `Colours ${n}`), i.element;
}
function tn() {
	let e = new L(() => t()), t = () => {
		e.resize(22, 12), ft(e.pen, 0, 0, 22, 12);
	};
	return t(), e.element.removeAttribute("tabindex"), e.element.setAttribute("aria-hidden", "true"), e.element;
}
// src/blocks/heat-map.ts
function nn(t, n) {
	let r = new Ke(t, n.source);
	if (!t.rows.length || !t.places) return e("p", { class: "muted" }, "No data to plot.");
	let i = new rn(t, r), a = I("chart", (e) => i.painting.draw(e));
	return a.append(i.painting.element, i.told.element), e("div", { class: "heat-map" }, e("p", { class: "muted" }, `Colour: ${t.legend}.`), a, $t(t.unit, r));
}
var rn = class {
	block;
	cells;
	told = M();
	painting;
	cell = null;
	constructor(e, t) {
		this.block = e, this.cells = t, this.painting = new wt(e, t);
		let n = this.painting.element;
		n.setAttribute("role", "application"), n.setAttribute("aria-label", `${e.title || e.name}: ${e.legend}. Arrow keys move between cells.`), n.addEventListener("pointermove", (e) => this.pointed(e)), n.addEventListener("pointerdown", (e) => this.pointed(e)), n.addEventListener("pointerleave", N(() => this.select(null))), n.addEventListener("focus", () => n.matches(":focus-visible") && this.select(this.cell ?? [0, 0])), n.addEventListener("blur", () => this.select(null)), n.addEventListener("keydown", (e) => this.key(e));
	}
	pointed(e) {
		let t = this.painting.element.getBoundingClientRect();
		this.select(this.painting.cellAt(e.clientX - t.left, e.clientY - t.top));
	}
	key(e) {
		if (e.key === "Escape") return this.select(null);
		let t = {
			ArrowUp: [-1, 0],
			ArrowDown: [1, 0],
			ArrowLeft: [0, -1],
			ArrowRight: [0, 1],
			Home: [0, -Infinity],
			End: [0, Infinity]
		}[e.key];
		if (!t) return;
		e.preventDefault();
		let [n, r] = this.cell ?? [0, 0], i = Math.max(0, Math.min(this.block.rows.length - 1, n + t[0]));
		this.select([i, Math.max(0, Math.min(this.block.widths[i] - 1, r + t[1]))]);
	}
	select(e) {
		if (String(e) === String(this.cell)) return;
		if (this.cell = e, this.painting.mark(e), !e) return this.told.hide();
		let [t, n] = e, r = this.cells.at(t, n), i = this.block.columns?.[n] ?? `${n + 1} of ${this.block.widths[t]}`, a = typeof r == "number" ? O(r, this.block.unit) : "no value";
		this.told.show(...this.painting.pointOf(e), a, [[this.block.down || "row", this.block.rows[t]], [this.block.across || "column", i]]);
	}
};
// src/copyable.ts
function an(t) {
	let n = e("code", {}, ...g(t)), r = e("button", {
		type: "button",
		class: "copy",
		click: () => void i()
	}, "copy");
	async function i() {
		try {
			await navigator.clipboard.writeText(t), r.textContent = "copied";
		} catch {
			getSelection()?.selectAllChildren(n), r.textContent = "selected";
		}
		setTimeout(() => r.textContent = "copy", 1500);
	}
	return e("span", { class: "copyable" }, n, r);
}
// src/blocks/knob-bars.ts
var on = 26, sn = 20, cn = 5;
function ln(e, n) {
	let r = Math.max(e.ns, n?.high_ns ?? 0, n?.predicted_ns ?? 0), i = (e) => `${(100 * e / r).toFixed(3)}%`, a = n ? [un("predicted", "predicted", n.lines, 1, i), dn(n, i)] : [];
	return t("svg", {
		class: "bars",
		role: "img",
		"aria-label": `${n ? `${e.name} ${w(e.ns)}, predicted ${w(n.predicted_ns)}` : `${e.name} ${w(e.ns)}`}; the table below lists the ledger lines.`,
		height: W(2) + 22
	}, ...fn(r, i), un("measured", e.name, e.lines, 0, i), ...a);
}
function W(e) {
	return e * 46 + sn;
}
function un(e, n, r, i, a) {
	let o = 0, s = r.map(([e, n]) => {
		let r = t("title", {}, `${e}: ${w(n)}`), s = {
			x: a(o),
			y: W(i),
			width: a(n),
			height: on,
			fill: P(e),
			"data-line": e
		};
		return o += n, t("rect", s, r);
	});
	return t("g", { class: e }, t("text", {
		x: 0,
		y: W(i) - 6
	}, n), ...s);
}
function dn(e, n) {
	let r = W(1) + on / 2, [i, a] = [n(e.low_ns), n(e.high_ns)], o = `90% interval: ${w(e.low_ns)} to ${w(e.high_ns)}`, s = [i, a].map((e) => t("line", {
		x1: e,
		x2: e,
		y1: r - 6,
		y2: r + 6
	})), c = t("line", {
		x1: i,
		x2: a,
		y1: r,
		y2: r
	}), l = t("g", { class: "halo" }, c.cloneNode(), ...s.map((e) => e.cloneNode()));
	return t("g", { class: "interval" }, t("title", {}, o), l, c, ...s);
}
function fn(e, n) {
	let r = W(2) - sn + 4;
	return V(H("ns", "", e), cn).flatMap(({ value: i, label: a }) => {
		let o = i === 0 ? "start" : i > .93 * e ? "end" : "middle";
		return [t("line", {
			class: "grid",
			x1: n(i),
			x2: n(i),
			y1: 0,
			y2: r
		}), t("text", {
			class: "tick",
			x: n(i),
			y: r + 14,
			"text-anchor": o
		}, a)];
	});
}
// src/blocks/knob-answer.ts
var pn = /^\w[\w.-]*$/;
function mn(t, n) {
	let { setting: r, changes: i } = n, a = i.map(([e, t]) => `${e}=${t}`).join(", "), o = e("h4", {}, a ? `With ${a}` : "As recorded. Move a slider to predict a change."), s = hn(t, r.work);
	return r.predicted_ns === null ? [
		o,
		gn(s, null),
		Sn(r)
	] : [
		o,
		gn(s, i.length ? r : null),
		...i.length ? [xn(s, r)] : [],
		ln(s, i.length ? r : null),
		Cn(s, r, i.length > 0),
		...En(n)
	];
}
function hn(e, t) {
	let n = e.lines.map(([e, n]) => [e, n * t]);
	return {
		name: t > 1 ? `measured, ${t} steps` : "measured",
		ns: e.measured_ns * t,
		lines: n
	};
}
function gn(t, n) {
	let r = [_n("measured", t.name === "measured" ? "measured step" : t.name, w(t.ns))];
	if (n && n.predicted_ns !== null) {
		r.push(_n("predicted", "predicted step", w(n.predicted_ns)));
		let e = 1 - n.predicted_ns / t.ns, i = bn(t, n) || !e ? "gain" : e > 0 ? "gain good" : "gain bad";
		r.push(_n(i, "difference", yn(e)));
	}
	return e("div", {
		class: "figures",
		"aria-live": "polite"
	}, ...r);
}
function _n(t, n, r) {
	return e("div", { class: `figure ${t}` }, e("span", { class: "muted" }, n), e("strong", {}, r));
}
function vn(e, t) {
	return 1 - t.predicted_ns / (e.measured_ns * t.work);
}
function yn(e) {
	return e === 0 ? "no change" : `${E(Math.abs(e))} ${e > 0 ? "shorter" : "longer"}`;
}
function bn(e, { low_ns: t, high_ns: n }) {
	return t !== null && n !== null && t <= e.ns && e.ns <= n;
}
function xn(t, n) {
	let [r, i] = [n.low_ns, n.high_ns], a = [`90% interval: ${w(r)} to ${w(i)}.`];
	if (bn(t, n) && a.push("The effect may be zero."), n.work > 1) {
		let e = w(n.predicted_ns / n.work);
		a.push(`One step then does the work of ${n.work} recorded steps: ${e} for each of them.`);
	}
	return e("p", { class: "sure" }, a.join(" "));
}
function Sn(t) {
	return e("p", { class: "why" }, e("strong", {}, "No prediction: "), t.why_not);
}
function Cn(t, n, r) {
	let i = new Map(t.lines), a = new Map(n.lines), o = [.../* @__PURE__ */ new Set([...i.keys(), ...a.keys()])].map((e) => ({
		name: e,
		old: i.get(e) ?? 0,
		now: a.get(e) ?? 0
	})), s = (e) => Math.abs(e.now - e.old);
	o.sort((e, t) => s(t) - s(e) || t.old - e.old);
	let c = [
		"line",
		t.name,
		...r ? ["predicted", "difference"] : []
	], l = o.map((t) => e("tr", { "data-line": t.name }, e("th", { scope: "row" }, ...wn(t.name)), ...d(t.old, t.now))), u = e("tr", { class: "sum" }, e("th", { scope: "row" }, "step"), ...d(t.ns, n.predicted_ns));
	function d(t, n) {
		return (r ? [
			w(t),
			w(n),
			Tn(n - t)
		] : [w(t)]).map((t) => e("td", { class: "number" }, t));
	}
	return e("table", { class: "moved" }, e("thead", {}, e("tr", {}, ...c.map((t) => e("th", { scope: "col" }, t)))), e("tbody", {}, ...l, u));
}
function wn(t) {
	let n = e("i", {
		class: "swatch",
		"aria-hidden": "true"
	});
	return n.style.setProperty("background", P(t)), [n, f(t)];
}
function Tn(e) {
	return e > 0 ? `+${w(e)}` : w(e);
}
function En({ run: t, changes: n, setting: r, knobs: i }) {
	if (!n.length) return [];
	let a = [["save this prediction", an(`lostflops whatif ${pn.test(t) ? t : "RUN"} ${n.map(([e, t]) => `--change ${e}=${t}`).join(" ")}`)]];
	r.how && a.unshift(["how to apply", e("code", {}, r.how)]);
	let o = i.flatMap((e) => e.cost ? [e.cost] : []);
	o.length && a.push(["cost and risk", e("span", {}, o.join("; "))]);
	let s = r.notes.map((t) => e("li", {}, t)), c = e("details", {}, e("summary", {}, "assumptions"), e("ul", {}, ...s));
	return [e("dl", { class: "applied" }, ...a.flatMap(([t, n]) => [e("dt", {}, t), e("dd", {}, n)])), ...s.length ? [c] : []];
}
// src/blocks/knob-slider.ts
var Dn = 0;
function On(t, n, r) {
	let i = t.now ?? 0, a = `knob-${++Dn}`, o = e("input", {
		id: a,
		type: "range",
		min: 0,
		max: t.settings.length - 1,
		step: 1,
		value: i,
		list: `${a}-ticks`
	}), s = o, c = e("output", { for: a }), l = e("p", { class: "effect muted" }), u = e("div", {
		class: "knob",
		"data-knob": t.change
	}, e("label", { for: a }, t.label), c, e("p", { class: "about muted" }, t.about), e("div", { class: "track" }, o, kn(t, a)), l);
	u.style.setProperty("--places", String(t.settings.length));
	function d() {
		let e = t.settings[Number(s.value)], r = Number(s.value) === i, a = r && e.value !== "as recorded" ? `${e.value} (now)` : e.value;
		c.textContent = a, o.setAttribute("aria-valuetext", e.why_not ? `${a}: no prediction` : a), l.textContent = n(e), u.classList.toggle("turned", !r);
	}
	return o.addEventListener("input", () => (d(), r())), d(), {
		knob: t,
		element: u,
		get setting() {
			return t.settings[Number(s.value)];
		},
		get isTurned() {
			return Number(s.value) !== i;
		},
		reset() {
			s.value = String(i), d();
		}
	};
}
function kn(t, n) {
	let r = document.createDocumentFragment(), i = t.settings.map((t, n) => e("option", {
		value: n,
		label: t.value
	})), a = t.settings.map((n, r) => e("span", { class: r === t.now ? "now" : n.predicted_ns === null ? "untold" : "" }, r === t.now ? "now" : n.value));
	return r.append(e("datalist", { id: `${n}-ticks` }, ...i), e("div", {
		class: "ticks",
		"aria-hidden": "true"
	}, ...a)), r;
}
// src/blocks/knobs.ts
var An = .001, jn = 150, Mn = "This page predicts one change at a time: moving a slider resets the others. To combine changes, use lostflops serve or lostflops whatif.", Nn = "Changes are replayed together, in the order shown.";
function Pn(t, n) {
	if (!t.items.length) return e("p", { class: "muted" }, "No what-if applies to this run.");
	let { live: r } = n.source, i = e("div", { class: "answer" }), a = t.items.map((e, n) => On(e, (n) => Ln(t, e, n), () => s(n))), o = 0;
	function s(e) {
		r || a.forEach((t, n) => n === e ? void 0 : t.reset());
		let n = a.filter((e) => e.isTurned), s = n.map((e) => [e.knob.change, e.setting.value]), l = ++o;
		if (!r || n.length < 2) return c(n[0]?.setting ?? zn(t), n, s);
		i.setAttribute("aria-busy", "true"), i.firstElementChild.textContent = `Replaying ${s.map((e) => e.join("=")).join(", ")}…`, setTimeout(() => {
			if (l !== o) return;
			let e = (e) => l === o ? c(e, n, s) : void 0;
			r.whatif(s).then(e, (t) => e(Bn(String(t))));
		}, jn);
	}
	function c(e, r, a) {
		i.removeAttribute("aria-busy");
		let o = {
			run: n.source.page.title,
			changes: a,
			setting: e,
			knobs: r.map((e) => e.knob)
		};
		i.replaceChildren(...mn(t, o));
	}
	function l() {
		a.forEach((e) => e.reset()), s(-1);
	}
	s(-1);
	let u = e("button", {
		type: "button",
		class: "back",
		click: l
	}, "reset all"), d = e("p", { class: "muted together" }, r ? Nn : Mn);
	return e("div", { class: "knobs" }, i, e("div", { class: "rows" }, ...Fn(t, a), u, d));
}
function Fn(t, n) {
	let r = n.filter((e) => In(e.knob, t.measured_ns)), i = n.filter((e) => !r.includes(e));
	if (!i.length || !r.length) return n.map((e) => e.element);
	let a = `${i.length} more ${i.length === 1 ? "change" : "changes"} with an effect below 0.1%`;
	return [...r.map((e) => e.element), e("details", { class: "still" }, e("summary", {}, a), ...i.map((e) => e.element))];
}
function In(e, t) {
	return e.settings.some((e) => e.predicted_ns !== null && Math.abs(e.predicted_ns / e.work - t) > An * t);
}
function Ln(e, t, n) {
	if (n === t.settings[t.now ?? 0]) return `step: ${Rn(e, t)}`;
	if (n.predicted_ns === null) return "step: no prediction";
	let r = n.work > 1 ? " for the same work" : "";
	return `step: ${w(n.predicted_ns / n.work)}${r}, ${yn(vn(e, n))}`;
}
function Rn(e, t) {
	let n = t.settings.filter((e) => e.predicted_ns !== null), r = n.map((e) => e.predicted_ns / e.work), [i, a] = [Math.min(...r), Math.max(...r)].map(w);
	if (i !== a) return `${i} to ${a}`;
	let o = n.map((t) => vn(e, t)).sort((e, t) => Math.abs(t) - Math.abs(e));
	return o[0] ? `${i}, at most ${yn(o[0])}` : `${i}`;
}
function zn(e) {
	let t = e.items[0];
	return t.settings[t.now ?? 0];
}
function Bn(e) {
	return {
		value: "",
		predicted_ns: null,
		low_ns: null,
		high_ns: null,
		lines: [],
		why_not: e,
		work: 1,
		how: "",
		notes: []
	};
}
// src/readout.ts
function Vn(t) {
	let n = e("p", { class: "readout" }, t), r = () => n.replaceChildren(t);
	return {
		element: n,
		tells: (t, i, a) => {
			let o = () => n.replaceChildren(e("b", {}, i), ` ${a}`);
			t.setAttribute("tabindex", "0"), t.setAttribute("role", "img"), t.setAttribute("aria-label", `${i}: ${a}`);
			for (let e of [
				"pointerenter",
				"focus",
				"click"
			]) t.addEventListener(e, o);
			for (let e of ["pointerleave", "blur"]) t.addEventListener(e, r);
		}
	};
}
// src/share-axis.ts
function Hn(e) {
	let n = [
		0,
		25,
		50,
		75,
		100
	].map((e) => {
		let n = e === 0 ? "start" : e === 100 ? "end" : "middle";
		return t("text", {
			x: `${e}%`,
			y: 14,
			"text-anchor": n
		}, `${e}%`);
	}), r = t("text", {
		x: "50%",
		y: 32,
		"text-anchor": "middle"
	}, `share of ${e}`);
	return t("svg", { class: "share-axis" }, ...n, r);
}
// src/unfolding.ts
var Un = 40;
function Wn(e, t) {
	let n = e.slice(Un);
	return n.length < 2 ? e : [...e.slice(0, Un), t(`${n.length.toLocaleString("en-US")} more`, n)];
}
function Gn(e, t, n = 0, r) {
	let i = n;
	return e.map((e) => {
		let [n, a] = [t.share(e), r ?? P(e.name)], o = Gn(t.parts(e), t, i, a), s = {
			name: e.name,
			figure: t.figure(e),
			share: n,
			from: i,
			paint: a,
			said: u(e.name) ?? "",
			parts: o
		};
		return i += n, s;
	});
}
function Kn(t, n, r, i) {
	let [a, o] = i;
	return e("div", { class: "unfolding" }, qn("head", [
		"",
		t,
		"share"
	]), ...n.map(Jn), qn("total", [
		"total",
		r,
		E(+!!n.length)
	]), a.length ? Qn(a, o) : null);
}
function qn(t, [n, r, i]) {
	return e("div", { class: `row ${t}` }, e("span"), e("span", { class: "name" }, n), e("span", { class: "no-track" }), e("span", { class: "figure" }, r), e("span", { class: "share" }, i));
}
function Jn(t) {
	return !t.said && !t.parts.length ? e("div", {
		class: "row",
		"data-row": t.name
	}, ...Yn(t)) : e("details", { "data-row": t.name }, e("summary", { class: "row" }, ...Yn(t)), e("div", { class: "inside" }, t.said ? e("p", { class: "said" }, t.said) : null, ...t.parts.map(Jn)));
}
function Yn(n) {
	return [
		e("span", { class: n.said || n.parts.length ? "mark" : "" }),
		e("span", { class: "name" }, Xn(n)),
		t("svg", {
			class: "track",
			"aria-hidden": "true"
		}, ...Zn(n.from, n.share, n.paint)),
		e("span", { class: "figure" }, n.figure),
		e("span", { class: "share" }, E(n.share))
	];
}
function Xn(t) {
	return t.said ? e("span", {
		class: "term",
		"data-term": t.name
	}, t.name) : t.name;
}
function Zn(e, n, r) {
	let [i, a] = [`${100 * e}%`, `${100 * n}%`], o = t("rect", {
		class: "bar",
		x: i,
		width: a,
		height: "100%"
	}), s = t("line", {
		x1: i,
		x2: i,
		y1: 0,
		y2: "100%"
	});
	return o.style.setProperty("fill", r), s.style.setProperty("stroke", r), [s, o];
}
function Qn(t, n) {
	let r = `${t.length} ${n}${t.length === 1 ? "" : "s"} at zero`;
	return e("details", { class: "nothing" }, e("summary", {}, e("span", { class: "mark" }), ` ${r}`), e("p", { class: "said" }, t.join(", ")));
}
// src/blocks/lines.ts
function $n(t) {
	if (!t.total_ns) return e("p", { class: "muted" }, "No time was recorded.");
	let n = t.items.filter((e) => e.ns > 0), r = t.items.filter((e) => e.ns === 0).map((e) => e.name), i = Gn(n, {
		figure: (e) => w(e.ns / t.per),
		share: (e) => e.share,
		parts: (e) => Wn(e.parts, er)
	}), a = w(t.total_ns / t.per), o = t.unit ? `per ${t.unit}` : "time";
	return e("div", { class: "lines" }, ...tr(i, o), Kn(o, i, a, [r, "line"]));
}
function er(e, t) {
	let n = (e) => t.reduce((t, n) => t + e(n), 0);
	return {
		name: e,
		ns: n((e) => e.ns),
		share: n((e) => e.share),
		parts: []
	};
}
function tr(e, n) {
	let r = Vn("Each part is one ledger line; together they add up to the total time.");
	return [
		t("svg", { class: "whole" }, ...e.map((e) => {
			let i = t("g", { "data-line": e.name }, ...Zn(e.from, e.share, e.paint)), a = e.said ? `: ${e.said}` : "";
			return r.tells(i, e.name, `${e.figure} ${n === "time" ? "" : `${n}, `}${E(e.share)}${a}`), i;
		})),
		Hn("the time of all ranks"),
		r.element
	];
}
// src/blocks/table-cells.ts
var nr = 56, rr = 12, ir = /[.:;] /, ar = /^\S+(, \S+)+$/, or = {
	gbs: "GB/s",
	time: "UTC"
}, sr = {
	ns: "_ns",
	bytes: "_bytes",
	gbs: "_gbs"
};
function cr(e) {
	let t = sr[e.unit], n = t && e.name.endsWith(t) ? e.name.slice(0, -t.length) : e.name, r = e.label || (e.name === "ns" ? "time" : n.replaceAll("_", " ")), i = or[e.unit];
	return i && !r.includes(i) ? `${r} ${i}` : r;
}
function lr(e, t) {
	return e.every((e) => e[t] === null || typeof e[t] == "number");
}
function ur(e, t) {
	return e.some((e) => typeof e[t] == "string" && gr(mr(e[t], e)));
}
function dr(t, { place: n, field: r, numeric: i, names: a }) {
	let o = O(t[n] ?? null, r.unit);
	if (i || typeof t[n] != "string") return e("td", { class: i ? "number" : "" }, o);
	let s = mr(o, t);
	return s !== o || gr(s) ? e("td", {
		class: "name",
		title: s
	}, _r(s)) : a && ar.test(o) ? e("td", { class: "name list" }, o) : a && o.length <= nr ? e("td", { class: "name" }, f(o)) : o.length > nr ? e("td", { class: "prose" }, ...g(o)) : e("td", { class: o.includes(" ") ? "words" : "" }, f(o));
}
function fr(e, { place: t, field: n }) {
	return mr(O(e[t] ?? null, n.unit), e);
}
function pr(e, t) {
	return typeof e == "number" && typeof t == "number" ? e - t : String(e).localeCompare(String(t), "en", { numeric: !0 });
}
function mr(e, t) {
	let [n = "", r = ""] = e.split("..."), i = e.includes("...");
	return t.find((t) => {
		if (typeof t != "string" || t === e) return !1;
		let a = hr(t);
		return i ? n !== "" && a.includes(n) && a.endsWith(r) : t !== a && a === e;
	}) ?? e;
}
function hr(e) {
	return e.replace(/^void |\(anonymous namespace\)::|\b(?:at::native|at|c10)::/g, "");
}
function gr(e) {
	let t = e.length / e.split(" ").length;
	return e.length > 24 && t > rr && !ir.test(e);
}
function _r(e) {
	let t = hr(e);
	return t.length > nr ? `${t.slice(0, 36)}…${t.slice(-19)}` : t;
}
// src/blocks/rows.ts
var vr = 28, yr = 20;
function br(e, t, n, r) {
	let i = Math.max(0, Math.floor(e.scrollTop / vr) - yr), a = Math.min(n, i + Math.ceil((e.clientHeight || 600) / vr) + 40), o = Array.from({ length: a - i }, (e, t) => r(i + t));
	t.replaceChildren(xr(i), ...o, xr(n - a));
}
function xr(t) {
	let n = e("tr", {
		"aria-hidden": !0,
		class: "room"
	});
	return n.style.setProperty("height", `${t * vr}px`), n;
}
// src/blocks/table.ts
var G = 20, Sr = 1e3;
function Cr(t) {
	return t.rows.length ? new Tr(t).element : e("p", { class: "muted" }, `No rows.${wr(t.left_out)}`);
}
function wr(e) {
	return e ? ` ${x(String(e))} more ${e === 1 ? "row is" : "rows are"} not on this page.` : "";
}
var Tr = class {
	block;
	columns;
	heads = e("tr");
	body = e("tbody");
	table = e("table", {}, e("thead", {}, this.heads), this.body);
	box = e("div", {
		class: "scroll",
		role: "region",
		scroll: () => this.scrolled()
	}, this.table);
	count = e("span", {
		class: "muted",
		"aria-live": "polite"
	});
	unfold = e("button", {
		type: "button",
		click: () => this.toggleAll()
	});
	element;
	rows;
	sorted = null;
	wanted = "";
	all = !1;
	more = !1;
	constructor(t) {
		this.block = t, this.columns = t.fields.map((e, n) => ({
			place: n,
			field: e,
			numeric: lr(t.rows, n),
			names: ur(t.rows, n)
		})), this.rows = t.rows, this.box.setAttribute("aria-label", t.title || t.name), this.element = e("div", { class: "grid" }, this.filterBox(), this.box, e("div", { class: "tools below" }, this.unfold, this.moreColumns(), this.count)), this.draw(), new ResizeObserver(() => this.letScroll()).observe(this.box);
	}
	letScroll() {
		let { scrollWidth: e, clientWidth: t, scrollHeight: n, clientHeight: r } = this.box;
		e > t || n > r ? this.box.tabIndex = 0 : this.box.removeAttribute("tabindex");
	}
	filterBox() {
		if (this.block.rows.length <= G) return null;
		let t = e("input", {
			type: "search",
			placeholder: "filter rows",
			"aria-label": "Filter rows"
		});
		return t.addEventListener("input", () => {
			this.wanted = t.value.toLowerCase(), this.draw();
		}), e("div", { class: "tools" }, t);
	}
	moreColumns() {
		let t = this.block.fields.filter((e) => !e.shown).length;
		if (!t) return null;
		let n = (e) => {
			this.more = e.target.checked, this.draw();
		}, r = `${t} more ${t === 1 ? "column" : "columns"}`;
		return e("label", { class: "muted" }, e("input", {
			type: "checkbox",
			change: n
		}), r);
	}
	draw() {
		this.heads.replaceChildren(...this.shown().map((e) => this.head(e))), this.rows = this.chosen();
		let e = this.all && this.rows.length > Sr;
		this.element.classList.toggle("windowed", e), this.table.setAttribute("aria-rowcount", String(this.rows.length + 1)), e ? this.scrolled() : this.body.replaceChildren(...this.rows.slice(0, this.all ? void 0 : G).map((e) => this.row(e))), this.say();
	}
	scrolled() {
		if (this.element.classList.contains("windowed")) {
			br(this.box, this.body, this.rows.length, (e) => this.row(this.rows[e]));
			for (let e of this.heads.children) e.style.setProperty("min-width", `${e.offsetWidth}px`);
		}
	}
	say() {
		let [e, t] = [this.rows.length, this.block.rows.length];
		this.unfold.hidden = e <= G, this.unfold.textContent = this.all ? `show the first ${G}` : `show all ${x(String(e))}`;
		let n = this.wanted ? `${x(String(e))} of ${x(String(t))} rows.` : "";
		this.count.textContent = `${n}${wr(this.block.left_out)}`.trim();
	}
	shown() {
		return this.columns.filter(({ field: e }) => e.shown || this.more);
	}
	head({ place: t, field: n, numeric: r }) {
		let i = this.sorted?.place === t ? this.sorted.down ? "descending" : "ascending" : "none", a = ee(cr(n)), o = e("span", a === void 0 ? {} : { class: "term" }, cr(n)), s = e("button", {
			type: "button",
			click: () => this.sort(t),
			...a === void 0 ? {} : { "data-term": a }
		}, o);
		return e("th", {
			scope: "col",
			"aria-sort": i,
			class: r ? "number" : ""
		}, s);
	}
	row(t) {
		return e("tr", {}, ...this.shown().map((e) => dr(t, e)));
	}
	sort(e) {
		let t = this.columns[e].numeric;
		this.sorted = this.sorted?.place === e ? this.sorted.down === t ? {
			place: e,
			down: !t
		} : null : {
			place: e,
			down: t
		}, this.draw();
		let n = this.shown().findIndex((t) => t.place === e);
		(this.heads.children[n]?.firstElementChild).focus();
	}
	toggleAll() {
		this.all = !this.all, this.box.scrollTop = 0, this.draw(), this.all || this.element.scrollIntoView({ block: "nearest" });
	}
	chosen() {
		let e = (e) => this.shown().map((t) => fr(e, t).toLowerCase()), t = this.wanted ? this.block.rows.filter((t) => e(t).some((e) => e.includes(this.wanted))) : this.block.rows;
		if (!this.sorted) return t;
		let { place: n, down: r } = this.sorted, i = t.filter((e) => e[n] !== null);
		return i.sort((e, t) => (r ? -1 : 1) * pr(e[n] ?? null, t[n] ?? null)), [...i, ...t.filter((e) => e[n] === null)];
	}
};
// src/blocks/pairs.ts
function Er(t) {
	return e("dl", { class: "pairs" }, ...t.items.filter((e) => e.shown).map((e) => Or(e)));
}
function Dr(t) {
	return e("div", {}, Er(t), Cr(t.table));
}
function Or(t) {
	let n = Array.isArray(t.value) ? k(t.value, t.unit) : O(t.value, t.unit);
	return e("div", {}, e("dt", {}, ...p(cr(t))), e("dd", { "data-name": t.name }, f(n)));
}
// src/fitting.ts
var kr = 6, Ar = 3, jr = document.createElement("canvas").getContext("2d"), Mr = (e, t) => `${e.slice(0, t - 1)}…`, Nr = (e, t) => `…${e.slice(e.length - t + 1)}`, Pr = () => "";
function K(e, t) {
	return jr.font = t, jr.measureText(e).width;
}
function Fr(e, t, n, r = Pr) {
	let i = Math.floor(t / Ar);
	if (e.length <= i && K(e, n) <= t) return e;
	for (let a = Math.min(e.length - 1, i); a >= kr; a--) {
		let i = r(e, a);
		if (K(i, n) <= t) return i;
	}
	return "";
}
// src/grid.ts
var Ir = 72, Lr = 32, Rr = "12px system-ui, sans-serif", zr = 7, Br = 66, Vr = 26, Hr = 42, Ur = 16, Wr = 8;
function Gr(e, t, n, r) {
	let i = Math.max(40, r - Vr - Hr), a = Math.max(0, ...qr(t, i).map(({ label: e }) => K(e, Rr))), o = Math.max(Br, Math.ceil(a) + Wr + 4);
	return {
		across: e,
		up: t,
		left: o,
		top: Vr,
		width: Math.max(40, n - o - Ur),
		height: i
	};
}
function Kr({ left: e, top: t, width: n, height: r }) {
	return {
		width: e + n + Ur,
		height: t + r + Hr
	};
}
function qr(e, t) {
	return V(e, Math.max(3, Math.floor(t / Lr)));
}
function q(e, t) {
	return e.left + It(e.across, t) * e.width;
}
function J(e, t) {
	return e.top + (1 - It(e.up, t)) * e.height;
}
function Jr(e) {
	let { left: n, top: r, width: i, height: a } = e, o = r + a, s = qr(e.up, a).flatMap(({ value: r, label: a }) => {
		let o = J(e, r);
		return [t("path", {
			class: "grid",
			d: `M${n} ${o}h${i}`
		}), t("text", {
			x: n - Wr,
			y: o + 4,
			"text-anchor": "end"
		}, a)];
	}), c = -Infinity, l = V(e.across, Math.max(2, Math.floor(i / Ir))).flatMap(({ value: s, label: l }) => {
		let u = q(e, s), d = K(l, Rr) / 2, f = t("path", {
			class: "grid",
			d: `M${u} ${r}v${a}`
		}), p = Math.min(u, n + i + Ur - d - 2);
		return p - d < c ? [f] : (c = p + d + zr, [f, t("text", {
			x: p,
			y: o + 17,
			"text-anchor": "middle"
		}, l)]);
	});
	return t("g", { class: "axes" }, ...s, ...l, t("path", {
		class: "frame",
		d: `M${n} ${r}V${o}H${n + i}`
	}), t("text", {
		class: "axis",
		x: 2,
		y: 13
	}, e.up.title), t("text", {
		class: "axis",
		x: n + i,
		y: o + 35,
		"text-anchor": "end"
	}, e.across.title));
}
var Yr = 2, Xr = [
	"m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
	"m-3 -3h6v6h-6z",
	"m0 -4l4 7h-8z",
	"m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
	"m0 4l4 -7h-8z"
], Zr = [
	"",
	"7 3",
	"2 3",
	"9 3 2 3"
];
function Qr(e) {
	let t = [], n = /* @__PURE__ */ new Map();
	return e.map(({ name: e, drawn: r }) => {
		let i = e.split(":", 1)[0];
		t.includes(i) || t.push(i);
		let a = t.indexOf(i), o = n.get(`${r} ${i}`) ?? 0;
		n.set(`${r} ${i}`, o + 1);
		let s = Math.floor(a / 8);
		return {
			colour: ot(a),
			shape: Xr[(a + o) % Xr.length],
			dash: Zr[(s + o) % Zr.length]
		};
	});
}
function $r(e, t) {
	return t === "marks" ? ei(e) : ti(e);
}
function ei(e) {
	let t = /* @__PURE__ */ new Set();
	return e.filter(({ x: e, y: n }) => {
		let r = `${Math.round(e / Yr)} ${Math.round(n / Yr)}`;
		return !t.has(r) && t.add(r);
	});
}
function ti(e) {
	let t = [];
	for (let n = 0, r = 0; n < e.length; n = r) {
		let i = Math.round(e[n].x);
		for (; r < e.length && Math.round(e[r].x) === i;) r++;
		let a = e.slice(n, r), o = (e) => a.reduce((t, n) => e(n, t) ? n : t), s = [
			a[0],
			o((e, t) => e.y < t.y),
			o((e, t) => e.y > t.y),
			a[a.length - 1]
		];
		t.push(...[...new Set(s)].sort((e, t) => e.point - t.point));
	}
	return t;
}
function ni(e, t, n) {
	let r = ({ x: e, y: t }) => `${e.toFixed(1)} ${t.toFixed(1)}`;
	return n === "line" ? e.map((e, t) => `${t ? "L" : "M"}${r(e)}`).join("") : e.map((e) => `M${r(e)}${t.shape}`).join("");
}
function ri(e, t, n) {
	let r = null, i = Infinity;
	return e.forEach((e, a) => {
		for (let o of e) {
			let e = (o.x - t) ** 2 + (o.y - n) ** 2;
			e < i && ([i, r] = [e, {
				series: a,
				spot: o
			}]);
		}
	}), r;
}
// src/blocks/plot.ts
function ii(t) {
	let n = ([e, n]) => zt(e, t.log_x) && zt(n, t.log_y), r = t.series.flatMap((e) => e.points), i = r.filter(n), a = r.length - i.length, o = a ? `Not drawn: ${a} ${a === 1 ? "point" : "points"} that these axes cannot show.` : "";
	if (!i.length) return e("p", { class: "muted" }, `No data to plot. ${o}`.trim());
	let s = Lt(t.x, i.map(([e]) => e), t.log_x), c = Lt(t.y, i.map(([, e]) => e), t.log_y), l = new ai(t, n);
	return e("div", { class: "plot" }, I("chart", (e, t) => {
		l.draw(Gr(s, c, e, Math.round(Math.max(240, Math.min(380, e * .5)))), t, i.length);
	}), l.legend, o ? e("p", { class: "muted" }, o) : null);
}
var ai = class {
	block;
	fits;
	legend;
	looks;
	hidden = /* @__PURE__ */ new Set();
	paths = [];
	told = M();
	cursor = t("circle", {
		class: "cursor",
		r: 7,
		visibility: "hidden"
	});
	spots = [];
	at = null;
	constructor(t, n) {
		this.block = t, this.fits = n, this.looks = Qr(t.series), this.legend = e("ul", { class: "chart-legend" }, ...t.series.map((e, t) => this.entry(e, t)));
	}
	draw(e, n, r) {
		this.spots = this.block.series.map((t) => t.points.flatMap((t, n) => this.fits(t) ? [{
			x: q(e, t[0]),
			y: J(e, t[1]),
			point: n
		}] : [])), this.block.series.forEach(({ drawn: e }, t) => {
			let n = this.spots[t];
			this.paths[t] = this.path(r > 5e3 ? $r(n, e) : n, e, t);
		});
		let i = this.paths.filter((e, t) => this.block.series[t]?.drawn === "line"), a = this.paths.filter((e, t) => this.block.series[t]?.drawn === "marks"), o = `${this.block.title || this.block.name}: ${e.up.title} over ${e.across.title}`, s = t("svg", {
			...Kr(e),
			tabindex: 0,
			role: "application",
			"aria-label": `${o}. Arrow keys move between points.`,
			pointermove: (e) => this.pointed(e, s),
			pointerdown: (e) => this.pointed(e, s),
			pointerleave: N(() => this.tell(null)),
			focus: () => this.at ?? this.tell(this.first()),
			blur: () => this.tell(null),
			keydown: (e) => this.key(e)
		}, Jr(e), ...i, ...a, this.cursor);
		n.replaceChildren(s, this.told.element), this.tell(null);
	}
	path(e, n, r) {
		let i = this.looks[r], a = n === "line" ? {
			stroke: i.colour,
			"stroke-dasharray": i.dash
		} : { fill: i.colour }, o = this.hidden.has(r) ? "hidden" : "visible";
		return t("path", {
			class: n,
			d: ni(e, i, n),
			"data-points": e.length,
			visibility: o,
			...a
		});
	}
	entry(n, r) {
		let i = this.looks[r], a = e("button", {
			type: "button",
			"aria-pressed": "true",
			click: () => this.toggle(r, a)
		}, t("svg", {
			width: 22,
			height: 12,
			"aria-hidden": "true"
		}, n.drawn === "line" ? t("path", {
			class: "line",
			d: "M0 6h22",
			stroke: i.colour,
			"stroke-dasharray": i.dash
		}) : t("path", {
			d: `M11 6${i.shape}`,
			fill: i.colour
		})), n.name);
		return e("li", {}, a);
	}
	toggle(e, t) {
		this.hidden.delete(e) || this.hidden.add(e), t.setAttribute("aria-pressed", String(!this.hidden.has(e))), this.paths[e]?.setAttribute("visibility", this.hidden.has(e) ? "hidden" : "visible"), this.tell(null);
	}
	shown() {
		return this.spots.map((e, t) => this.hidden.has(t) ? [] : e);
	}
	first() {
		let e = this.shown().findIndex((e) => e.length);
		return e < 0 ? null : {
			series: e,
			spot: this.spots[e]?.[0]
		};
	}
	pointed(e, t) {
		let n = t.getBoundingClientRect();
		this.tell(ri(this.shown(), e.clientX - n.left, e.clientY - n.top));
	}
	key(e) {
		let t = this.at ?? this.first();
		if (e.key === "Escape") return this.tell(null);
		if (!t) return;
		let n = {
			ArrowLeft: -1,
			ArrowRight: 1,
			Home: -Infinity,
			End: Infinity
		}[e.key], r = {
			ArrowUp: -1,
			ArrowDown: 1
		}[e.key];
		(n !== void 0 || r !== void 0) && (e.preventDefault(), this.tell(n === void 0 ? this.between(t, r) : this.along(t, n)));
	}
	along(e, t) {
		let n = [...this.spots[e.series]].sort((e, t) => e.x - t.x || e.point - t.point), r = n.findIndex((t) => t.point === e.spot.point);
		return {
			series: e.series,
			spot: n[Math.max(0, Math.min(n.length - 1, r + t))]
		};
	}
	between(e, t) {
		let n = this.shown(), r = e.series + t;
		for (; r >= 0 && r < n.length && !n[r]?.length;) r += t;
		return ri(n.map((e, t) => t === r ? e : []), e.spot.x, e.spot.y) ?? e;
	}
	tell(e) {
		if (this.at = e, this.cursor.setAttribute("visibility", e ? "visible" : "hidden"), !e) return this.told.hide();
		let t = this.block.series[e.series], [n, r] = t.points[e.spot.point];
		this.cursor.setAttribute("cx", String(e.spot.x)), this.cursor.setAttribute("cy", String(e.spot.y)), this.told.show(e.spot.x, e.spot.y, t.name, [[this.block.x.label || this.block.x.name, Vt(n, this.block.x)], [this.block.y.label || this.block.y.name, Vt(r, this.block.y)]]);
	}
};
// src/treemap.ts
function oi(e, t) {
	let n = e.reduce((e, t) => e + t, 0), r = n > 0 ? t.width * t.height / n : 0, i = e.map((e) => e * r), a = [], o = t;
	for (; a.length < i.length;) {
		let e = si(i.slice(a.length), Math.min(o.width, o.height)), t = i.slice(a.length, a.length + e);
		a.push(...li(t, o)), o = ui(o, t);
	}
	return a;
}
function si(e, t) {
	let n = 1;
	for (; n < e.length && ci(e.slice(0, n + 1), t) <= ci(e.slice(0, n), t);) n++;
	return n;
}
function ci(e, t) {
	let n = fi(e);
	if (n <= 0 || t <= 0) return Infinity;
	let [r, i] = [Math.min(...e), Math.max(...e)];
	return Math.max(t * t * i / (n * n), n * n / (t * t * r));
}
function li(e, t) {
	let n = t.width >= t.height, r = di(e, t), i = n ? t.y : t.x;
	return e.map((e) => {
		let a = r > 0 ? e / r : 0, o = n ? {
			x: t.x,
			y: i,
			width: r,
			height: a
		} : {
			x: i,
			y: t.y,
			width: a,
			height: r
		};
		return i += a, o;
	});
}
function ui(e, t) {
	let n = di(t, e);
	return e.width >= e.height ? {
		...e,
		x: e.x + n,
		width: Math.max(e.width - n, 0)
	} : {
		...e,
		y: e.y + n,
		height: Math.max(e.height - n, 0)
	};
}
function di(e, t) {
	let n = Math.min(t.width, t.height);
	return n > 0 ? fi(e) / n : 0;
}
function fi(e) {
	return e.reduce((e, t) => e + t, 0);
}
// src/blocks/portions.ts
var pi = 16, mi = 5, hi = "12px system-ui, sans-serif", gi = `600 ${hi}`;
function _i(n) {
	if (!n.total) return e("p", { class: "muted" }, "No memory in use.");
	let r = n.items.filter((e) => e.bytes > 0), i = n.items.filter((e) => e.bytes === 0).map((e) => e.name), a = Vn(`Area shows bytes; the total is ${T(n.total)}.`), o = t("svg", { class: "map" });
	new ResizeObserver(() => {
		let e = {
			x: 0,
			y: 0,
			width: o.clientWidth,
			height: o.clientHeight
		};
		e.width && o.replaceChildren(...vi(r, e, n.total, a));
	}).observe(o);
	let s = Kn("bytes", Gn(r, {
		figure: (e) => T(e.bytes),
		share: (e) => e.bytes / n.total,
		parts: (e) => Wn(e.parts, xi)
	}), T(n.total), [i, n.key]);
	return e("div", { class: "portions" }, o, a.element, s);
}
function vi(e, n, r, i) {
	let a = oi(e.map((e) => e.bytes), n);
	return e.flatMap((e, n) => {
		let o = a[n], s = e.parts.length ? Wn(e.parts, xi) : [e], c = oi(s.map((e) => e.bytes), o), l = s.map((t, n) => {
			let a = yi(e, t, c[n], n === 0);
			return i.tells(a, t === e ? e.name : `${e.name}, ${t.name}`, bi(t, r)), a;
		}), u = t("rect", {
			class: "owner",
			...o
		});
		return u.style.setProperty("stroke", P(e.name)), [t("g", { "data-portion": e.name }, ...l), u];
	});
}
function yi(e, n, r, i) {
	let a = t("rect", {
		width: "100%",
		height: "100%"
	});
	a.style.setProperty("fill", P(e.name));
	let o = r.width - 10, s = [
		i ? Fr(e.name, o, gi, Mr) : "",
		n === e ? "" : Fr(n.name, o, hi, Nr),
		Fr(T(n.bytes), o, hi)
	], c = s.filter(Boolean).slice(0, Math.max(0, Math.floor((r.height - mi) / pi))).map((e, n) => t("text", {
		x: mi,
		y: pi * (n + 1),
		class: e === s[0] ? "owned" : ""
	}, e));
	return t("svg", {
		class: "tile",
		"data-part": n.name,
		...r
	}, a, ...c);
}
function bi(e, t) {
	let n = e.count === 1 ? "1 block" : `${e.count.toLocaleString("en-US")} blocks`;
	return `${T(e.bytes)}, ${E(e.bytes / t)}, ${n}`;
}
function xi(e, t) {
	let n = (e) => t.reduce((t, n) => t + e(n), 0);
	return {
		name: e,
		bytes: n((e) => e.bytes),
		count: n((e) => e.count),
		parts: []
	};
}
// src/timeline/columns.ts
function Si(e) {
	let t = 0;
	for (let n = 0; n < e.length; n++) e[n] < 128 && t++;
	let n = new Float64Array(t), r = 0;
	for (let t = 0; t < e.length; t++) {
		let i = e[t], a = i & 127;
		for (let n = 128; i >= 128; n *= 128) i = e[++t], a += (i & 127) * n;
		n[r++] = a;
	}
	return n;
}
function Ci(e) {
	let t = Si(e), n = 0;
	for (let e = 0; e < t.length; e++) {
		let r = t[e];
		n += r % 2 ? -(r + 1) / 2 : r / 2, t[e] = n;
	}
	return t;
}
function wi(e, t, n = 0) {
	let r = n, i = 1;
	for (; r + i <= e.length && e[r + i - 1] <= t;) r += i, i *= 2;
	let a = Math.min(e.length, r + i - 1);
	for (; r < a;) {
		let n = r + a >>> 1;
		e[n] > t ? a = n : r = n + 1;
	}
	return r;
}
// src/timeline/pyramid.ts
var Ti = class {
	bins;
	rows;
	codes;
	#e = /* @__PURE__ */ new Map();
	#t;
	constructor(e, t, n, r) {
		this.bins = e, this.rows = t, this.codes = r, this.#t = new Uint32Array(n + 1);
	}
	static levelFor(e) {
		return Math.max(0, Math.floor(Math.log2(e)));
	}
	level(e, t) {
		if (t === 0) return this.codes.subarray(e * this.bins, (e + 1) * this.bins);
		let n = e * 64 + t, r = this.#e.get(n);
		return r || this.#e.set(n, r = this.#n(e, 2 ** t)), r;
	}
	binAt(e) {
		return Math.max(0, Math.min(this.bins - 1, Math.floor(e * this.bins)));
	}
	stretch(e, t) {
		let n = this.level(e, 0), r = n[t] ?? 0, i = t, a = t + 1;
		for (; i > 0 && n[i - 1] === r;) i--;
		for (; a < n.length && n[a] === r;) a++;
		return [
			r,
			i,
			a
		];
	}
	#n(e, t) {
		let n = this.level(e, 0), r = new Uint8Array(Math.ceil(n.length / t));
		for (let e = 0; e < r.length; e++) {
			this.#t.fill(0);
			let i = 0;
			for (let r = e * t; r < Math.min((e + 1) * t, n.length); r++) {
				let e = n[r];
				++this.#t[e] > this.#t[i] && (i = e);
			}
			r[e] = i;
		}
		return r;
	}
}, Ei = class {
	name;
	items;
	first;
	count;
	depth;
	#e;
	constructor(e, t, n, r, i = 0) {
		this.name = e, this.items = t, this.first = n, this.count = r, this.depth = i;
	}
	get levels() {
		return this.#e ??= Fi(this.items, this.first, this.count, this.depth);
	}
};
function Di(e, t) {
	let n = t(e.codes), r = e.rows.map((e, t) => ({
		name: e,
		strip: t,
		lanes: []
	})), i = {
		began: e.began,
		span: e.span,
		groups: r,
		strips: new Ti(e.bins, e.rows.length, e.kinds.length, n),
		kinds: e.kinds,
		marks: e.marks,
		marked: e.marked,
		leftOut: 0
	};
	return e.events && Oi(i, e.events, t), i;
}
function Oi(e, t, n) {
	let r = Mi(t, n), i = new Map(e.groups.map((e) => [e.name, e])), a = /* @__PURE__ */ new Map(), o = 0;
	for (let [e, n, s] of t.lanes) {
		let c = i.get(t.rows[e]);
		c && a.set(c, [...a.get(c) ?? [], new Ei(n, r, o, s)]), o += s;
	}
	for (let [e, t] of a) e.lanes = ki(e.lanes, t);
	e.leftOut = t.left_out;
}
function ki(e, t) {
	let n = new Map(Ai(e)), r = new Map(Ai(t)), i = [...n.keys()], a = 0;
	for (let e of r.keys()) n.has(e) || i.splice(a, 0, e), a = i.indexOf(e) + 1;
	let { items: o } = t[0];
	return i.map((e) => {
		let t = r.get(e), i = n.get(e)?.levels.length ?? 0;
		return new Ei((t ?? n.get(e)).name, o, t?.first ?? 0, t?.count ?? 0, i);
	});
}
function Ai(e) {
	let t = /* @__PURE__ */ new Map();
	return e.map((e) => {
		let n = t.get(e.name) ?? 0;
		return t.set(e.name, n + 1), [`${n} ${e.name}`, e];
	});
}
function ji(e) {
	let t = [...new Set(e.items.map((e) => e.name))], n = [...new Set(e.items.map((e) => e.kind))], r = new Map(t.map((e, t) => [e, t])), i = [...e.items].sort((e, t) => e.row - t.row || e.start - t.start || t.stop - e.stop), a = (e) => Float64Array.from(i, e), o = new Float64Array(i.length), s = {
		start: a((e) => e.start),
		dur: a((e) => e.stop - e.start),
		kind: a((e) => n.indexOf(e.kind)),
		name: a((e) => r.get(e.name)),
		event: o,
		launch: o,
		wait: o,
		kinds: n,
		names: t,
		meetings: Pi(),
		said: (e) => i[e].said
	}, c = 0, l = e.rows.map((e, t) => {
		let n = i.filter((e) => e.row === t).length;
		return c += n, {
			name: e,
			strip: null,
			lanes: [new Ei("", s, c - n, n)]
		};
	});
	return {
		began: e.began,
		span: e.span,
		groups: l,
		strips: null,
		kinds: [],
		marks: [],
		marked: "",
		leftOut: e.left_out
	};
}
function Mi(e, t) {
	let { meetings: n } = e;
	return {
		...Ni(e, t, [
			"start",
			"event",
			"launch"
		], [
			"dur",
			"kind",
			"name",
			"wait"
		]),
		kinds: e.kinds,
		names: e.names,
		meetings: {
			...Ni(n, t, [
				"meeting",
				"row",
				"event",
				"arrived"
			], [
				"dur",
				"wait",
				"said"
			]),
			sayings: n.sayings,
			leftOut: n.left_out
		},
		said: () => []
	};
}
function Ni(e, t, n, r) {
	let i = (n, r) => [n, r(t(e[n]))], a = [...n.map((e) => i(e, Ci)), ...r.map((e) => i(e, Si))];
	return Object.fromEntries(a);
}
function Pi() {
	let e = /* @__PURE__ */ new Float64Array();
	return {
		meeting: e,
		row: e,
		event: e,
		arrived: e,
		dur: e,
		wait: e,
		said: e,
		sayings: [],
		leftOut: 0
	};
}
function Fi(e, t, n, r) {
	let i = Array.from({ length: r }, () => []), a = [];
	for (let r = t; r < t + n; r++) {
		let t = e.start[r], n = 0;
		for (; n < a.length && a[n] > t;) n++;
		(i[n] ??= []).push(r), a[n] = t + e.dur[r];
	}
	return i.map((t) => ({
		start: Float64Array.from(t, (t) => e.start[t]),
		stop: Float64Array.from(t, (t) => e.start[t] + e.dur[t]),
		item: Uint32Array.from(t)
	}));
}
// src/timeline/capture.ts
function Ii(e, t) {
	try {
		e.setPointerCapture(t.pointerId);
	} catch {}
}
var Li = "11px system-ui, sans-serif", Ri = 5.9, zi = 110, Bi = 5;
function Vi(e, t) {
	let { context: n, width: r, height: i, labels: a, palette: o } = e, { view: s, model: c } = t, l = (e) => Math.round(a + (e - s.start) / s.width * r) + .5;
	n.font = Li, n.textBaseline = "middle", n.textAlign = "left", n.strokeStyle = o.rule, n.fillStyle = o.muted, n.beginPath();
	let u = a;
	for (let { value: e, label: t } of V(Rt("ns", "", s.start, s.stop), Math.max(Bi, r / zi))) {
		let i = l(e), o = i + 3 + n.measureText(t).width;
		n.moveTo(i, 16), n.lineTo(i, 22), i < u || o > a + r || (n.fillText(t, i + 3, 10), u = o);
	}
	n.moveTo(0, 21.5), n.lineTo(a + r, 21.5), n.stroke();
	let d = c.marks.filter(([, e]) => e >= s.start && e <= s.stop);
	if (d.length > r / 12) return;
	n.strokeStyle = o.text, n.setLineDash([2, 3]), n.beginPath();
	for (let [, e] of d) n.moveTo(l(e), 22), n.lineTo(l(e), 22 + i + 16);
	n.stroke(), n.setLineDash([]);
	let f = a;
	for (let [t, n] of d) f = Hi(e, `${c.marked} ${t}`, l(n), f);
}
function Hi({ context: e, width: t, height: n, labels: r, palette: i }, a, o, s) {
	let c = e.measureText(a).width + 6, l = Math.min(o, r + t - c);
	return l < s ? s : (e.fillStyle = i.text, e.fillRect(l, 22 + n + 1, c, 15), e.fillStyle = i.page, e.fillText(a, l + 3, 22 + n + 8 + 1), l + c + 2);
}
function Ui(e, t, n, r) {
	let { context: i, labels: a, scroll: o, palette: s } = e;
	i.font = Li, i.textAlign = "left", i.textBaseline = "middle", i.fillStyle = s.muted, t.model.marks.length && (i.fillStyle = s.page, i.fillRect(0, 22 + e.height, a, 16), i.fillStyle = s.muted, i.fillText(`${t.model.marked} start`, 5, 22 + e.height + 8, a - 8));
	let c = 22;
	for (let e of n) {
		let n = 22 + e.top - o, l = n + e.height / 2, u = e.level === null, d = u && e.group === t.cursor && r;
		d && (i.fillStyle = s.accent, i.fillRect(0, Math.max(22, n), 3, Math.max(3, e.height))), !e.label || l < c + 6 || (i.fillStyle = d ? s.accent : u ? s.text : s.muted, i.fillText(Wi(i, Gi(t, e) + e.label, a - 8), 5, l), c = l + 6);
	}
}
function Wi(e, t, n) {
	let r = Math.floor(n / Ri);
	return t.length <= r || t.length < 2 * r && e.measureText(t).width <= n ? t : `${t.slice(0, r - 1)}…`;
}
function Gi(e, t) {
	return t.level ? e.model.strips ? " " : "" : e.model.groups[t.group].lanes.length ? e.unfolded.has(t.group) ? "▾ " : "▸ " : "";
}
function Ki({ context: e, width: t, height: n, labels: r, scroll: i, palette: a }, o) {
	let s = o.selected, c = s && qi(o, s);
	if (!c) return;
	let { view: l } = o, [u, d] = Y(o, s), f = r + Math.max(-4, (u - l.start) / l.width * t), p = r + Math.min(t + 4, (d - l.start) / l.width * t);
	p < r || f > r + t || (e.save(), e.beginPath(), e.rect(r, 22, t, n), e.clip(), e.strokeStyle = a.text, e.lineWidth = 2, e.strokeRect(f, 22 + c.top - i, Math.max(3, p - f), Math.max(4, c.height - 1)), e.restore());
}
function qi(e, t) {
	return e.layout.rows.find((e) => e.group === t.group && Ji(e, t));
}
function Ji(e, t) {
	if (t.item === null || !e.level) return t.item === null && e.level === null;
	if (e.lane !== t.lane) return !1;
	let { item: n } = e.level, r = 0;
	for (let e = n.length; r < e;) {
		let i = r + e >>> 1;
		n[i] < t.item ? r = i + 1 : e = i;
	}
	return n[r] === t.item;
}
function Y(e, t) {
	if (t.item !== null) {
		let { items: e } = t.lane;
		return [e.start[t.item], e.start[t.item] + e.dur[t.item]];
	}
	let { strips: n, span: r, groups: i } = e.model;
	if (!n) return [t.time, t.time];
	let [, a, o] = n.stretch(i[t.group].strip, n.binAt(t.time / r));
	return [a * r / n.bins, o * r / n.bins];
}
// src/timeline/controls.ts
var Yi = 4, Xi = .15, X = 1.5;
function Zi(e, t, n, r) {
	let i = /* @__PURE__ */ new Map(), a = 0, o = (t) => {
		let r = t.clientX - e.getBoundingClientRect().left - n.labels;
		return Math.max(0, Math.min(1, r / n.width));
	}, s = (t) => {
		let n = e.getBoundingClientRect();
		return [t.clientX - n.left, t.clientY - n.top];
	};
	e.addEventListener("wheel", (e) => {
		if (e.ctrlKey || e.metaKey) t.view.zoom(Math.exp(e.deltaY / 300), o(e));
		else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) t.view.pan((e.deltaX || e.deltaY) / n.width * t.view.width);
		else return;
		e.preventDefault(), r.redraw();
	}), e.addEventListener("pointerdown", (t) => {
		t.button > 0 || (i.set(t.pointerId, t), a = 0, Ii(e, t));
	}), e.addEventListener("pointermove", (e) => {
		let c = i.get(e.pointerId);
		if (!c) {
			r.hover(r.targetAt(...s(e)), ...s(e));
			return;
		}
		let l = [...i.values()].find((t) => t.pointerId !== e.pointerId), [u, d] = [e.clientX - c.clientX, e.clientY - c.clientY];
		if (a += Math.abs(u) + Math.abs(d), l) {
			let [n, r] = [Math.abs(c.clientX - l.clientX), Math.abs(e.clientX - l.clientX)];
			n > 8 && r > 8 && t.view.zoom(n / r, o(l));
		} else t.view.pan(-u / n.width * t.view.width), e.pointerType === "mouse" && r.scroll(-d);
		i.set(e.pointerId, e), r.redraw();
	});
	let c = (e) => {
		if (i.delete(e.pointerId) && e.type === "pointerup" && a < Yi) {
			let [t, i] = s(e), a = r.targetAt(t, i);
			a && t < n.labels ? r.fold(a.group) : r.select(a);
		}
	};
	e.addEventListener("pointerup", c), e.addEventListener("pointercancel", c), e.addEventListener("pointerleave", () => r.hover(null, 0, 0)), e.addEventListener("dblclick", () => {
		t.view.reset(), r.redraw();
	}), e.addEventListener("focus", () => r.redraw()), e.addEventListener("blur", () => r.redraw()), e.addEventListener("keydown", (e) => {
		e.ctrlKey || e.metaKey || e.altKey || Qi(e, t, r) && (e.preventDefault(), e.stopPropagation(), r.redraw());
	});
}
function Qi(e, t, n) {
	let { view: r } = t, i = t.model.groups.length - 1, a = e.key.length === 1 ? e.key.toLowerCase() : e.key;
	if (e.shiftKey && a.startsWith("Arrow")) return (a === "ArrowLeft" || a === "ArrowRight") && $i(t, ea(t, a === "ArrowRight" ? 1 : -1), n), !0;
	let o = {
		w: () => r.zoom(1 / X),
		"+": () => r.zoom(1 / X),
		s: () => r.zoom(X),
		"-": () => r.zoom(X),
		a: () => r.pan(-.15 * r.width),
		ArrowLeft: () => r.pan(-.15 * r.width),
		d: () => r.pan(Xi * r.width),
		ArrowRight: () => r.pan(Xi * r.width),
		ArrowUp: () => n.reveal(t.cursor = Math.max(0, t.cursor - 1)),
		ArrowDown: () => n.reveal(t.cursor = Math.min(i, t.cursor + 1)),
		Home: () => r.reset(),
		0: () => r.reset(),
		Enter: () => n.fold(t.cursor),
		Escape: () => n.select(null)
	}, s = Object.hasOwn(o, a) ? o[a] : void 0;
	return s?.(), s !== void 0;
}
function $i(e, t, n) {
	if (n.select(t), !t) return;
	let { view: r } = e, [i, a] = Y(e, t);
	(a < r.start || i > r.stop) && r.pan((i + a) / 2 - (r.start + r.stop) / 2);
}
function ea(e, t) {
	let { selected: n, view: r, model: i } = e, a = (r.start + r.stop) / 2;
	if (!n) return {
		group: e.cursor,
		lane: null,
		item: null,
		time: a
	};
	if (n.item !== null) {
		let e = n.lane.levels.find((e) => e.item.includes(n.item)), r = e?.item[e.item.indexOf(n.item) + t];
		return r === void 0 ? n : {
			...n,
			item: r,
			time: n.lane.items.start[r]
		};
	}
	let [o, s] = Y(e, n), c = i.strips ? i.span / i.strips.bins : 1, l = t > 0 ? s + c / 2 : o - c / 2;
	return l < 0 || l > i.span ? n : {
		...n,
		time: l
	};
}
// src/timeline/palette.ts
var ta = {
	kernel: "compute",
	comm: "comm.transfer",
	host_comm: "comm.transfer",
	memcpy: "copy",
	memset: "copy",
	sync: "idle.sync",
	overhead: "idle.host",
	other: "idle.host"
}, na = {
	op: "#3c9d84",
	runtime: "#8d8fb3",
	annotation: "#b58bb0",
	device_annotation: "#b58bb0",
	module: "#c9a8d8",
	python: "#c9bf4a",
	forward: "#0072b2",
	backward: "#009e73"
};
function ra(e) {
	return Object.hasOwn(na, e) ? na[e] : Qe(Object.hasOwn(ta, e) ? ta[e] : e);
}
function ia(e) {
	let [t, n, r] = ct(e);
	return (255 << 24 | r << 16 | n << 8 | t) >>> 0;
}
function aa(e, t) {
	let n = (n) => Math.round(.22 * (e >>> n & 255) + .78 * (t >>> n & 255));
	return (255 << 24 | n(16) << 16 | n(8) << 8 | n(0)) >>> 0;
}
var oa = class {
	#e = /* @__PURE__ */ new Map();
	ground = ia(F("--page"));
	card = ia(F("--card"));
	page = F("--page");
	text = F("--text");
	muted = F("--muted");
	rule = F("--rule");
	accent = F("--accent");
	of(e) {
		let t = this.#e.get(e);
		if (!t) {
			let n = ra(e), r = ia(n);
			this.#e.set(e, t = {
				pixel: r,
				ink: st(n),
				faint: aa(r, this.card)
			});
		}
		return t;
	}
}, sa = {
	kernel: "compute kernel on the device",
	comm: "communication kernel; the part before the last rank arrives has the colour of comm.wait",
	host_comm: "collective on a host thread; the part before the last rank arrives has the colour of comm.wait",
	memcpy: "copy to, from or on the device",
	memset: "memset on the device",
	op: "framework op on a host thread",
	runtime: "device runtime call on a host thread",
	annotation: "program annotation",
	device_annotation: "program annotation, shown while its work runs on the device",
	module: "module call",
	python: "Python function",
	overhead: "profiler overhead",
	sync: "the device waits for an event on another stream",
	forward: "forward pass",
	backward: "backward pass"
};
function ca(e, t) {
	return Object.hasOwn(t, e) ? t[e] : Object.hasOwn(sa, e) ? sa[e] : "";
}
function la(t, n, r) {
	let [i, a] = ua(t), o = (i) => {
		let a = e("span", {
			class: "key",
			"aria-hidden": "true"
		});
		a.style.setProperty("background", ra(i));
		let o = () => {
			let e = !t.hidden.has(i);
			e ? t.hidden.add(i) : t.hidden.delete(i), c.setAttribute("aria-pressed", String(!e)), r();
		}, s = [ca(i, n), "Click to hide or show it"].filter(Boolean).join(". "), c = e("button", {
			type: "button",
			"aria-pressed": String(!t.hidden.has(i)),
			title: s,
			click: o
		}, a, i);
		return c;
	}, s = (t, n) => n.length ? e("div", {
		class: "legend",
		role: "group",
		"aria-label": t
	}, t, ...n.map(o)) : null;
	return e("div", {}, s("Rows", i), s(t.model.strips ? "Events" : "Kinds", a));
}
function ua({ model: e }) {
	let t = new Uint8Array(e.kinds.length + 1);
	if (e.strips) for (let n of e.strips.codes) t[n] = 1;
	let n = e.kinds.filter((e, n) => t[n + 1]), r = new Set(e.groups.flatMap((e) => e.lanes.map((e) => e.items)));
	return [n, [...new Set([...r].flatMap((e) => e.kinds))]];
}
// src/timeline/live.ts
var da = 2e4, fa = 16, pa = 250, ma = class {
	live;
	state;
	changed;
	#e = 0;
	#t = "";
	constructor(e, t, n) {
		this.live = e, this.state = t, this.changed = n;
	}
	look() {
		clearTimeout(this.#e), this.#e = window.setTimeout(() => void this.#n(), pa);
	}
	async #n() {
		let { model: e, view: t, unfolded: n } = this.state, r = [...n].map((t) => Number(e.groups[t].name.replace("rank ", "")));
		if (!r.length || r.length > fa || r.some(Number.isNaN)) return;
		let i = {
			ranks: r.sort((e, t) => e - t),
			start: Math.max(0, t.start - t.width / 2),
			stop: Math.min(e.span, t.stop + t.width / 2),
			most: da
		}, a = JSON.stringify(i);
		if (a !== this.#t) {
			this.#t = a;
			try {
				let { data: t, numbers: n } = await this.live.events(i);
				if (a !== this.#t) return;
				Oi(e, t, n), this.state.laidOut(), this.state.selected && (this.state.selected = this.state.renewed(this.state.selected)), this.changed();
			} catch {
				this.#t = "";
			}
		}
	}
}, Z = 26, ha = 64, ga = class {
	state;
	canvas = e("canvas", {
		class: "minimap",
		"aria-hidden": "true"
	});
	#e = this.canvas.getContext("2d", { alpha: !1 });
	#t = null;
	#n = 0;
	constructor(e, t) {
		this.state = e;
		let n = (n) => {
			let r = this.canvas.getBoundingClientRect(), i = (n.clientX - r.left - this.#n) / Math.max(1, r.width - this.#n) * e.model.span;
			e.view.show(i - e.view.width / 2, i + e.view.width / 2), t();
		};
		this.canvas.addEventListener("pointerdown", (e) => {
			Ii(this.canvas, e), n(e);
		}), this.canvas.addEventListener("pointermove", (e) => {
			e.buttons && n(e);
		});
	}
	resize(e, t, n) {
		this.#n = t, this.canvas.width = Math.max(1, e), this.canvas.height = Z, this.#t = this.#r(Math.max(1, e - t), n);
	}
	paint(e) {
		let t = this.#e, { view: n, model: r } = this.state, i = this.canvas.width - this.#n;
		t.fillStyle = e.page, t.fillRect(0, 0, this.canvas.width, Z), this.#t && t.putImageData(this.#t, this.#n, 0);
		let a = this.#n + n.start / r.span * i, o = Math.max(3, n.width / r.span * i);
		t.globalAlpha = .6, t.fillRect(this.#n, 0, a - this.#n, Z), t.fillRect(a + o, 0, i, Z), t.globalAlpha = 1, t.strokeStyle = e.text, t.lineWidth = 2, t.strokeRect(a + 1, 1, o - 2, 24);
	}
	#r(e, t) {
		let { model: n } = this.state, r = new ImageData(e, Z), i = new Uint32Array(r.data.buffer).fill(t.card), a = n.strips;
		if (!a) return r;
		let o = Math.ceil(a.rows / ha), s = [t.card, ...n.kinds.map((e) => t.of(e).pixel)];
		for (let t = 0; t < e; t++) {
			let n = new Float64Array(s.length), r = a.binAt(t / e), c = Math.max(r + 1, a.binAt((t + 1) / e));
			for (let e = 0; e < a.rows; e += o) {
				let t = a.level(e, 0);
				for (let e = r; e < c; e++) n[t[e]]++;
			}
			let l = n.reduce((e, t) => e + t), u = 0;
			for (let r of [...s.keys()].slice(1)) {
				let a = Math.round(u / l * Z);
				u += n[r];
				for (let n = a; n < Math.round(u / l * Z); n++) i[(25 - n) * e + t] = s[r];
			}
		}
		return r;
	}
}, _a = "10px ui-monospace, monospace", va = 6.1, ya = class {
	canvas;
	#e;
	#t = document.createElement("canvas");
	#n;
	#r = new ImageData(1, 1);
	#i = /* @__PURE__ */ new Uint32Array(1);
	#a = /* @__PURE__ */ new Uint32Array(1);
	#o = [];
	#s = 0;
	width = 1;
	height = 1;
	labels = 100;
	constructor(e) {
		this.canvas = e, this.#e = e.getContext("2d", { alpha: !1 }), this.#n = this.#t.getContext("2d", { alpha: !1 });
	}
	resize(e, t, n, r) {
		let i = devicePixelRatio || 1;
		this.labels = n, this.width = Math.max(1, Math.floor(e) - n), this.height = Math.max(1, Math.floor(t)), this.#s = r, this.canvas.width = Math.floor((this.width + n) * i), this.canvas.height = Math.floor((this.height + 22 + r) * i), this.#e.setTransform(i, 0, 0, i, 0, 0), this.#t.width = this.width, this.#t.height = this.height, this.#r = new ImageData(this.width, this.height), this.#i = new Uint32Array(this.#r.data.buffer), this.#a = new Uint32Array(this.width);
	}
	paint(e, t, n) {
		this.#i.fill(t.ground), this.#o = [];
		let { rows: r } = e.layout, i = e.layout.at(n), a = i;
		for (; a < r.length && r[a].top < n + this.height; a++) this.#c(r[a], e, t, n);
		this.#n.putImageData(this.#r, 0, 0);
		let o = this.#e;
		o.imageSmoothingEnabled = !1, o.fillStyle = t.page, o.fillRect(0, 0, this.labels + this.width, this.height + 22 + this.#s), o.drawImage(this.#t, this.labels, 22), this.#f();
		let s = {
			context: o,
			width: this.width,
			height: this.height,
			labels: this.labels,
			scroll: n,
			palette: t
		};
		Vi(s, e), Ui(s, e, r.slice(i, a), document.activeElement === this.canvas), Ki(s, e);
	}
	#c(e, t, n, r) {
		let i = this.#a;
		i.fill(e.level ? n.card : n.ground), e.level ? this.#u(e, t, n, r) : this.#l(e, t, n);
		let a = +(e.height >= 6), o = Math.max(0, Math.floor(e.top - r)), s = Math.min(this.height, Math.floor(e.top - r + e.height - a));
		for (let e = o; e < s; e++) this.#i.set(i, e * this.width);
	}
	#l(e, t, n) {
		let { model: r, view: i } = t, a = r.strips, o = [n.card, ...r.kinds.map((e) => t.hidden.has(e) ? n.card : n.of(e).pixel)], s = a.bins * i.width / r.span / this.width, c = Ti.levelFor(s), l = a.level(r.groups[e.group].strip, c), u = 2 ** c, d = s / u, f = a.bins * i.start / r.span / u + d / 2;
		for (let e = 0; e < this.width; e++, f += d) this.#a[e] = o[l[f | 0]] ?? n.card;
	}
	#u(e, t, n, r) {
		let { start: i, stop: a, item: o } = e.level, { items: s } = e.lane, { view: c } = t, l = this.#a, u = t.named(s), d = this.width / c.width, f = n.of("comm.wait").pixel, p = s.kinds.map((e) => t.hidden.has(e) ? null : n.of(e)), ee = 22 + e.top - r + e.height / 2 + 3, m = wi(a, c.start);
		for (; m < i.length && i[m] < c.stop;) {
			let e = o[m], t = (i[m] - c.start) * d, r = (a[m] - c.start) * d, h = Math.max(0, t | 0), g = Math.min(this.width, Math.max(h + 1, r | 0)), _ = p[s.kind[e]], v = u !== null && !u[s.name[e]];
			if (_) {
				let i = v ? _.faint : _.pixel;
				g === h + 1 ? l[h] = i : l.fill(i, h, g);
				let a = s.wait[e];
				a > 0 && !v && l.fill(f, h, Math.min(g, t + a * d | 0)), g - h > 3 && r <= this.width && (l[g - 1] = n.card), g - h > 12 && !v && this.#d(s.names[s.name[e]], _.ink, h, g, ee);
			}
			m = r - t >= 1 ? m + 1 : Math.max(m + 1, wi(a, c.start + (h + 1) / d, m));
		}
	}
	#d(e, t, n, r, i) {
		if (i < 30 || i > this.height + 22) return;
		let a = Math.floor((r - n - 4) / va);
		a < Math.min(4, e.length) || this.#o.push([
			e.length <= a ? e : `${e.slice(0, a - 1)}…`,
			t,
			this.labels + n + 3,
			i
		]);
	}
	#f() {
		let e = this.#e;
		e.font = _a, e.textAlign = "left", e.textBaseline = "alphabetic";
		for (let [t, n, r, i] of this.#o) e.fillStyle = n, e.fillText(t, r, i);
	}
}, ba = 12;
function xa(e, t, n) {
	let r = null, i = -Infinity;
	for (let a = 0; a < e.row.length; a++) {
		let o = e.arrived[a];
		e.row[a] === t && o <= n && n < o + e.dur[a] && o > i && ([r, i] = [e.meeting[a], o]);
	}
	return r;
}
function Sa(t, n, r) {
	let i = [...n.meeting.keys()].filter((e) => n.meeting[e] === r);
	i.sort((e, t) => n.arrived[t] - n.arrived[e]);
	let a = n.arrived[i.at(-1)], o = i.some((e) => n.wait[e] > 0), s = [
		"rank",
		"arrived after the first",
		"waited",
		"transfer"
	], c = (r, i) => e("tr", {}, e("th", { scope: "row" }, t.model.groups[n.row[r]].name, i === 0 && o ? " (last)" : ""), e("td", { class: "number" }, w(n.arrived[r] - a)), e("td", { class: "number" }, w(n.wait[r])), e("td", { class: "number" }, w(n.dur[r] - n.wait[r]))), l = e("tbody", {}, ...i.slice(0, ba).map(c)), u = i.slice(ba), d = e("button", { type: "button" }, `Show all ${i.length.toLocaleString("en-US")} ranks`);
	d.addEventListener("click", () => {
		l.append(...u.map((e) => c(e, ba))), d.remove();
	});
	let f = n.sayings[n.said[i[0]]];
	return e("div", { class: "meeting" }, e("p", {}, `Collective ${f}: ${i.length.toLocaleString("en-US")} ranks, latest arrival first.`), e("div", { class: "scroll" }, e("table", {}, e("thead", {}, e("tr", {}, ...s.map((t) => e("th", { scope: "col" }, t)))), l)), u.length ? d : null);
}
// src/timeline/panel.ts
var Ca = 6;
function wa(t, n, r) {
	let i = t.selected;
	if (!i) return e("p", { class: "muted" }, Ta(t));
	let [a, o, s] = i.item === null ? Ea(t, i, n) : Da(t, i, n, r), c = e("button", {
		type: "button",
		click: () => r.zoom(i)
	}, "Zoom to selection"), l = o.flatMap(([t, n]) => [e("dt", {}, t), e("dd", {}, n)]);
	return e("div", {}, e("p", { class: "selected" }, e("strong", {}, a), c), e("dl", {}, ...l), ...s);
}
function Ta(e) {
	return matchMedia("(pointer: coarse)").matches ? `Tap for details.${e.model.strips ? " Tap a rank's name to open its lanes." : ""} Drag with one finger to pan, pinch to zoom.` : `Click for details.${e.model.strips ? " Click a rank's name (or press Enter) to open its lanes." : ""} Pan: drag, or a and d. Zoom: Ctrl+wheel, or w and s. Next or previous event: Shift+arrows. Show everything: 0.`;
}
function Ea(e, t, n) {
	let { model: r } = e, i = r.groups[t.group], a = r.strips, o = a.binAt(t.time / r.span), [s] = a.stretch(i.strip, o), c = s ? r.kinds[s - 1] : "nothing recorded", [l, u] = Y(e, t), d = [
		["meaning", ca(c, n) || "no ledger line covers most of this time"],
		["row", i.name],
		["start", Aa(e, l)],
		["duration", `${w(u - l)}, to within ${w(r.span / a.bins)}`]
	], f = i.lanes[0]?.items, p = f && c.startsWith("comm.") ? xa(f.meetings, i.strip, t.time) : null;
	return [
		c,
		d,
		p === null ? [] : [Sa(e, f.meetings, p)]
	];
}
function Da(t, n, r, i) {
	let { items: a, name: o } = n.lane, s = n.item, c = a.kinds[a.kind[s]], l = a.wait[s], u = a.dur[s], d = [
		["kind", e("span", {
			title: ca(c, r),
			class: "word"
		}, c)],
		[t.model.strips ? "rank" : "row", t.model.groups[n.group].name],
		...o ? [["lane", o]] : [],
		["start", Aa(t, a.start[s])],
		["duration", w(u)],
		...l > 0 ? [["wait", `${w(l)}, then ${w(u - l)} of transfer`]] : [],
		...a.event.some(Boolean) ? [["event", String(a.event[s])]] : [],
		...a.said(s),
		...Oa(t, n, a, i)
	], { meetings: f } = a, p = t.model.groups[n.group].strip, ee = c === "comm" || c === "host_comm", m = ee ? f.event.findIndex((e, t) => e === a.event[s] && f.row[t] === p) : -1, h = e("p", { class: "muted" }, "Its other ranks are not shown: the collective was not matched on another rank, or it is left out of this page."), g = m >= 0 ? [Sa(t, f, f.meeting[m])] : ee ? [h] : [];
	return [
		a.names[a.name[s]],
		d,
		g
	];
}
function Oa(e, t, n, r) {
	let i = t.item, a = n.launch[i];
	if (a) {
		let o = n.start[i] - n.start[a - 1], s = o < 0 ? `recorded ${w(-o)} later` : `${w(o)} earlier`;
		return [["launched by", ka(e, t, n, a - 1, `${n.names[n.name[a - 1]]}, ${s}`, r)]];
	}
	if (n.kinds[n.kind[i]] !== "runtime") return [];
	let o = [];
	for (let e = 0; e < n.launch.length && o.length < Ca; e++) n.launch[e] === i + 1 && o.push(e);
	return o.map((a) => {
		let o = n.start[a] - n.start[i];
		return ["launches", ka(e, t, n, a, `${n.names[n.name[a]]}, ${w(o)} later`, r)];
	});
}
function ka(t, n, r, i, a, o) {
	let s = t.model.groups[n.group].lanes.filter((e) => e.items === r).find((e) => i >= e.first && i < e.first + e.count);
	if (!s) return e("span", {}, a);
	let c = {
		group: n.group,
		lane: s,
		item: i,
		time: r.start[i]
	};
	return e("button", {
		type: "button",
		class: "link",
		click: () => o.show(c)
	}, a);
}
function Aa(e, t) {
	let { marks: n, marked: r } = e.model, i = [...n].reverse().find(([, e]) => e <= t), a = i ? `, ${w(t - i[1])} into ${r} ${i[0]}` : "";
	return `${w(t)} from the start${a}`;
}
// src/timeline/pick.ts
function ja(e, t, n, [r, i]) {
	let { layout: a, view: o, model: s } = e, c = i - 22 + n, l = a.rows[a.at(c)];
	if (!l || i < 22 || i > 22 + t.height || c > a.height) return null;
	let u = o.start + (r - t.labels) / t.width * o.width, d = {
		group: l.group,
		lane: null,
		item: null,
		time: u
	};
	if (r < t.labels) return d;
	if (!l.level) return s.strips ? d : null;
	let f = o.width / t.width, p = wi(l.level.stop, u - f);
	return p >= l.level.start.length || l.level.start[p] > u + f ? null : {
		group: l.group,
		lane: l.lane,
		item: l.level.item[p],
		time: u
	};
}
function Ma(e, t, n) {
	for (let r of e.model.groups[t].lanes) {
		let e = r.items.event.subarray(r.first, r.first + r.count).indexOf(n);
		if (e >= 0) {
			let n = r.first + e;
			return {
				group: t,
				lane: r,
				item: n,
				time: r.items.start[n]
			};
		}
	}
	return null;
}
// src/timeline/search.ts
var Na = 1e5, Pa = class {
	state;
	show;
	redraw;
	#e = e("input", {
		type: "search",
		placeholder: "Search events by name",
		"aria-label": "Search events by name",
		class: "search"
	});
	#t = e("output", { class: "muted" });
	#n = e("button", {
		type: "button",
		title: "Previous match (Shift+Enter)",
		click: () => this.#d(-1)
	}, "‹");
	#r = e("button", {
		type: "button",
		title: "Next match (Enter)",
		click: () => this.#d(1)
	}, "›");
	element = e("span", { class: "searching" }, this.#e, this.#n, this.#r, this.#t);
	#i = [];
	#a = -1;
	#o = 0;
	constructor(e, t, n) {
		this.state = e, this.show = t, this.redraw = n, this.#e.addEventListener("input", () => {
			clearTimeout(this.#o), this.#o = window.setTimeout(() => this.#s(), 150);
		}), this.#e.addEventListener("keydown", (e) => {
			e.key === "Enter" && (this.state.searched !== this.#e.value.trim().toLowerCase() && this.#s(), this.#d(e.shiftKey ? -1 : 1));
		});
	}
	#s() {
		clearTimeout(this.#o), this.state.search(this.#e.value.trim()), this.#i = this.state.searched ? this.#l() : [], this.#a = -1, this.#t.textContent = this.state.searched ? `${this.#c()} found` : "", this.redraw();
	}
	#c() {
		return this.#i.length.toLocaleString("en-US") + (this.#i.length === Na ? " or more" : "");
	}
	#l() {
		let e = [];
		return this.state.model.groups.forEach(({ lanes: t }, n) => t.forEach((t) => this.#u(n, t, e))), e.sort((e, t) => e.time - t.time);
	}
	#u(e, t, n) {
		let { items: r } = t, i = this.state.named(r);
		for (let a = t.first; a < t.first + t.count && n.length < Na; a++) i[r.name[a]] && n.push({
			group: e,
			lane: t,
			item: a,
			time: r.start[a]
		});
	}
	#d(e) {
		if (!this.#i.length) return;
		let t = this.#a < 0 && e > 0 ? this.#i.findIndex((e) => e.time >= this.state.view.start) : -1, n = this.#a < 0 ? Math.max(0, t) : this.#a + e;
		this.#a = (n + this.#i.length) % this.#i.length, this.#t.textContent = `${(this.#a + 1).toLocaleString("en-US")} of ${this.#c()}`, this.show(this.#i[this.#a]);
	}
}, Fa = 15, Ia = 22, La = 4, Ra = 16, za = 440;
function Ba(e, t) {
	let n = Math.max(3, Math.min(22, Math.floor(za / Math.max(1, e))));
	return Math.max(3, Math.min(48, n + t));
}
var Va = class {
	rows = [];
	height;
	constructor(e, t, n) {
		let r = 0, i = (e, t, n, i, a) => {
			this.rows.push({
				group: e,
				lane: t,
				level: n,
				label: i,
				top: r,
				height: a
			}), r += a;
		};
		e.groups.forEach((e, a) => {
			if (e.strip !== null && i(a, null, null, e.name, n), e.strip === null || t.has(a)) for (let t of e.lanes) {
				let [n, o] = e.strip === null ? [e.name, Ia] : [t.name, Fa];
				t.levels.slice(0, Ra).forEach((e, r) => i(a, t, e, r ? "" : n, o)), r += La;
			}
		}), this.height = r;
	}
	at(e) {
		let t = 0, n = this.rows.length;
		for (; t < n;) {
			let r = t + n >>> 1;
			this.rows[r].top > e ? n = r : t = r + 1;
		}
		return Math.max(0, t - 1);
	}
}, Ha = 20, Ua = class {
	span;
	start = 0;
	stop;
	constructor(e) {
		this.span = e, this.stop = e;
	}
	get width() {
		return this.stop - this.start;
	}
	show(e, t) {
		let n = Math.min(this.span, Math.max(Math.min(Ha, this.span), t - e));
		this.start = Math.max(0, Math.min(this.span - n, (e + t - n) / 2)), this.stop = this.start + n;
	}
	pan(e) {
		this.show(this.start + e, this.stop + e);
	}
	zoom(e, t = .5) {
		let n = this.start + t * this.width, r = Math.min(this.span, Math.max(Math.min(Ha, this.span), this.width * e));
		this.show(n - t * r, n + (1 - t) * r);
	}
	reset() {
		this.show(0, this.span);
	}
}, Wa = class {
	model;
	view;
	unfolded = /* @__PURE__ */ new Set();
	hidden = /* @__PURE__ */ new Set();
	layout;
	taller = 0;
	cursor = 0;
	selected = null;
	hovered = null;
	searched = "";
	#e = /* @__PURE__ */ new WeakMap();
	constructor(e) {
		this.model = e, this.view = new Ua(e.span), this.layout = this.laidOut();
	}
	laidOut() {
		let { model: e } = this;
		return this.layout = new Va(e, this.unfolded, Ba(e.groups.length, this.taller));
	}
	fold(e, t = !this.unfolded.has(e)) {
		this.model.groups[e]?.strip !== null && (t ? this.unfolded.add(e) : this.unfolded.delete(e), this.laidOut());
	}
	renewed(e) {
		let { lanes: t } = this.model.groups[e.group];
		if (e.item === null || t.includes(e.lane)) return e;
		let n = e.lane.items.event[e.item];
		for (let r of t) {
			let t = r.items.event.subarray(r.first, r.first + r.count).indexOf(n);
			if (t >= 0) return {
				...e,
				lane: r,
				item: r.first + t
			};
		}
		return e;
	}
	search(e) {
		this.searched = e.toLowerCase(), this.#e = /* @__PURE__ */ new WeakMap();
	}
	named(e) {
		if (!this.searched) return null;
		let t = this.#e.get(e);
		return t || (t = Uint8Array.from(e.names, (e) => +!!e.toLowerCase().includes(this.searched)), this.#e.set(e, t)), t;
	}
}, Ga = 520, Ka = 600, qa = class {
	glossary;
	state;
	element;
	#e = e("canvas", {
		tabindex: 0,
		role: "application",
		"aria-label": "Timeline"
	});
	#t;
	#n = e("div", { class: "spacer" });
	#r = e("div", {
		class: "tip",
		role: "tooltip",
		hidden: !0
	});
	#i = e("div", {
		class: "panel",
		"aria-live": "polite"
	});
	#a = e("div");
	#o;
	#s;
	#c;
	#l = new oa();
	#u = 0;
	constructor(t, n, r) {
		this.glossary = n, this.state = new Wa(t), this.#o = new ya(this.#e), this.#s = new ga(this.state, () => this.redraw()), this.#c = r ? new ma(r, this.state, () => this.#y()) : null, this.#t = e("div", {
			class: "rows",
			scroll: () => this.redraw()
		}, this.#e, this.#n);
		let i = new Pa(this.state, (e) => this.show(e), () => this.redraw()), a = e("div", { class: "framed" }, t.strips ? this.#s.canvas : null, this.#t, this.#r), o = e("div", { class: "tools" }, i.element, e("div", { class: "buttons" }, ...this.#f()));
		this.element = e("div", { class: "timeline" }, o, this.#a, a, this.#i), Zi(this.#e, this.state, this.#o, this.#p()), new ResizeObserver(() => this.#b()).observe(a), $e(() => this.#x()), this.#x(), this.#h();
	}
	redraw() {
		this.#u ||= requestAnimationFrame(() => this.#d());
	}
	#d() {
		this.#u = 0, this.#o.paint(this.state, this.#l, this.#t.scrollTop), this.#s.paint(this.#l), this.#c?.look();
	}
	show(e) {
		let { state: t } = this, n = t.renewed(e);
		n.item !== null && t.fold(n.group, !0);
		let [r, i] = Y(t, n), a = Math.max(1.6 * (i - r), Math.min(t.view.width, Math.max(12 * (i - r), 2e3)));
		(r < t.view.start || i > t.view.stop || i - r < t.view.width / 400) && t.view.show((r + i) / 2 - a / 2, (r + i) / 2 + a / 2), this.#m(n), this.#y();
		let o = qi(t, n);
		o && (this.#t.scrollTop = Math.max(0, o.top - this.#o.height / 3));
	}
	showRank({ rank: e, event: t, step: n, last: r }) {
		let { state: i } = this, a = i.model.groups.findIndex((t) => t.name === `rank ${e}`);
		if (a < 0) return !1;
		let { marks: o, span: s } = i.model, c = o.findIndex(([e]) => e === n), l = Math.max(c, o.findIndex(([e]) => e === r));
		c >= 0 && i.view.show(o[c][1], o[l + 1]?.[1] ?? s), i.cursor = a;
		let u = t === void 0 ? null : Ma(i, a, t);
		return u ? this.show(u) : this.#p().reveal(a), t !== void 0 && !u ? this.#i.replaceChildren(Ya(a, t, i)) : n !== void 0 && c < 0 && this.#i.replaceChildren(Ja(n, i)), this.redraw(), !0;
	}
	focus() {
		this.#e.focus({ preventScroll: !0 });
	}
	#f() {
		let { view: t } = this.state, n = (t, n, r) => e("button", {
			type: "button",
			title: n,
			"aria-label": n,
			click: () => (r(), this.redraw())
		}, t), r = (e) => () => {
			this.state.taller += e, this.state.laidOut(), this.#y();
		};
		return [
			n("−", "Zoom out (s)", () => t.zoom(1.5)),
			n("+", "Zoom in (w)", () => t.zoom(1 / 1.5)),
			n("◂", "Earlier (a)", () => t.pan(-.25 * t.width)),
			n("▸", "Later (d)", () => t.pan(.25 * t.width)),
			n("All", "Show everything (0 or double-click)", () => t.reset()),
			...this.state.model.strips ? [n("↕+", "Taller rows", r(3)), n("↕−", "Shorter rows", r(-3))] : []
		];
	}
	#p() {
		let { state: e } = this;
		return {
			redraw: () => this.redraw(),
			targetAt: (t, n) => ja(e, this.#o, this.#t.scrollTop, [t, n]),
			select: (e) => this.#m(e),
			hover: (e, t, n) => this.#g(e, t, n),
			fold: (t) => {
				e.fold(t), e.cursor = t, this.#y();
			},
			scroll: (e) => this.#t.scrollBy(0, e),
			reveal: (t) => {
				let n = e.layout.rows.find((e) => e.group === t), { scrollTop: r } = this.#t;
				n.top < r && (this.#t.scrollTop = n.top);
				let i = n.top + n.height - r - this.#o.height;
				i > 0 && (this.#t.scrollTop = r + i);
			}
		};
	}
	#m(e) {
		this.state.selected = e, e && (this.state.cursor = e.group), this.#h(), this.redraw();
	}
	#h() {
		this.#i.replaceChildren(wa(this.state, this.glossary, {
			show: (e) => this.show(e),
			zoom: (e) => {
				let [t, n] = Y(this.state, e);
				this.state.view.show(t - .3 * (n - t), n + .3 * (n - t)), this.redraw();
			}
		}));
	}
	#g(e, t, n) {
		let r = e && t >= this.#o.labels ? this.#v(e) : "";
		this.#r.hidden = !r, r && (this.#r.textContent = r, this.#_(t, n + this.#t.offsetTop));
	}
	#_(e, t) {
		let { style: n } = this.#r;
		n.setProperty("left", "0");
		let { offsetWidth: r, offsetHeight: i } = this.#r, { clientWidth: a, clientHeight: o } = this.#r.parentElement, s = t + 16 + i <= o ? t + 16 : t - 8 - i;
		n.setProperty("left", `${Math.max(0, Math.min(e + 12, a - r))}px`), n.setProperty("top", `${Math.max(0, s)}px`);
	}
	#v(e) {
		let { model: t } = this.state, n = t.groups[e.group], [r, i] = Y(this.state, e);
		if (e.item !== null) {
			let { items: t } = e.lane;
			return `${t.names[t.name[e.item]]} · ${w(i - r)} · ${n.name}`;
		}
		let a = t.strips.level(n.strip, 0)[t.strips.binAt(e.time / t.span)], o = a ? t.kinds[a - 1] : "nothing recorded";
		return [
			o,
			w(i - r),
			n.name,
			ca(o, this.glossary)
		].filter(Boolean).join(" · ");
	}
	#y() {
		this.#b(), this.redraw();
	}
	#b() {
		let e = this.#t.clientWidth;
		if (!e) return;
		let t = e < Ka ? 92 : 128, n = Math.min(Ga, this.state.layout.height + 2), r = this.state.model.marks.length ? 16 : 0;
		this.#t.style.setProperty("height", `${n + 22 + r}px`), this.#n.style.setProperty("height", `${Math.max(0, this.state.layout.height + 2 - n)}px`), (e !== this.#o.width + this.#o.labels || n !== this.#o.height) && (this.#o.resize(e, n, t, r), this.#s.resize(e, t, this.#l)), this.redraw();
	}
	#x() {
		this.#l = new oa(), this.#a.replaceChildren(la(this.state, this.glossary, () => this.redraw())), this.#o.width = 0, this.#b(), this.element.isConnected && this.#d();
	}
};
function Ja(t, { model: n }) {
	return n.marks.length ? e("p", {}, `Step ${t} does not start on this timeline. Steps that do: ${k(n.marks.map(([e]) => e), "")}.`) : e("p", {}, "This timeline has no step marks.");
}
function Ya(t, n, { model: r }) {
	let i = r.groups[t].name;
	return e("p", {}, `Event ${n} of ${i} is not shown here. ${r.leftOut ? "A file keeps only the longest events of each lane; lostflops serve shows all of them." : ""}`);
}
// src/blocks/spans.ts
function Xa(t, n) {
	if (!t.items.length) return e("p", { class: "muted" }, "Nothing to show.");
	let { element: r } = new qa(ji(t), n.source.page.glossary, void 0);
	return e("div", {}, r, t.left_out ? e("p", { class: "muted" }, `${t.left_out.toLocaleString("en-US")} more not drawn.`) : null);
}
// src/blocks/sql.ts
var Za = "select rank, kind, count(*) as events, sum(dur) as ns\nfrom events\ngroup by all\norder by ns desc\nlimit 20";
function Qa(t, n) {
	let { live: r } = n.source;
	if (!r) return e("p", { class: "muted" }, "To run SQL, use lostflops serve RUN or lostflops sql RUN.");
	let i = e("textarea", {
		rows: 6,
		spellcheck: "false",
		autocomplete: "off",
		"aria-label": "SQL query",
		keydown: (e) => {
			let { key: t, ctrlKey: n, metaKey: r } = e;
			t === "Enter" && (n || r) && c();
		}
	});
	i.value = Za;
	let a = e("button", {
		type: "button",
		title: "Ctrl+Enter",
		click: () => void c()
	}, "Run"), o = e("div", {
		class: "sql-answer",
		"aria-live": "polite"
	}), s = null;
	async function c() {
		s?.abort();
		let t = s = new AbortController();
		o.replaceChildren(e("p", { class: "muted" }, "Running…"));
		let n = performance.now();
		try {
			let a = await r.sql(i.value, t.signal), s = `${a.verdict} ${Math.round(performance.now() - n)} ms.`, [c] = a.blocks;
			o.replaceChildren(e("p", { class: "muted" }, s), c?.kind === "Table" ? Cr(c) : "");
		} catch (n) {
			if (t.signal.aborted) return;
			o.replaceChildren(e("pre", {
				class: "sql-error",
				role: "alert"
			}, n.message));
		}
	}
	return e("div", { class: "sql" }, e("div", {}, i, e("p", { class: "muted" }, a, " or Ctrl+Enter. Limits: 10,000 rows, 1 MB, 30 s."), o), e("div", {
		class: "sql-tables",
		role: "region",
		"aria-label": "Tables",
		tabindex: 0
	}, ...t.tables.map($a)));
}
function $a(t) {
	let n = t.columns.map((t) => e("li", {}, e("code", {}, t.name), e("span", { class: "muted" }, ` ${t.type.toLowerCase()}${t.unit ? `, ${t.unit}` : ""}: ${t.doc}`)));
	return e("details", {}, e("summary", { title: t.doc }, e("code", {}, t.name)), e("p", {}, t.doc), e("ul", {}, ...n));
}
// src/branches.ts
var eo = class {
	block;
	count;
	parent;
	level;
	ns;
	samples;
	first;
	after;
	frame;
	constructor(e, t) {
		this.block = e;
		let n = t.numbers(e.parents), r = this.count = n.length + 1;
		this.parent = new Uint32Array(r), this.parent.set(n, 1), this.frame = new Uint32Array(r), this.frame.set(t.numbers(e.frames), 1), this.ns = new Float64Array(r), this.ns.set(t.numbers(e.ns), 1), this.samples = new Float64Array(r), this.samples.set(t.numbers(e.samples), 1), this.level = new Uint16Array(r), this.first = new Float64Array(r), this.after = new Uint32Array(r), this.place();
	}
	place() {
		for (let e = 1; e < this.count; e++) this.parent[e] || (this.ns[0] += this.ns[e], this.samples[0] += this.samples[e]);
		let e = new Float64Array(this.count);
		for (let t = 1; t < this.count; t++) {
			let n = this.parent[t];
			this.level[t] = this.level[n] + 1, this.first[t] = e[t] = e[n], e[n] += this.ns[t];
		}
		this.after.forEach((e, t) => this.after[t] = t + 1);
		for (let e = this.count - 1; e > 0; e--) {
			let t = this.parent[e];
			this.after[t] = Math.max(this.after[t], this.after[e]);
		}
	}
	name(e) {
		return e ? this.block.names[this.frame[e]] : "all";
	}
	kind(e) {
		return e ? this.block.kinds[this.frame[e]] : "";
	}
	own(e) {
		let t = this.ns[e];
		for (let n of this.children(e)) t -= this.ns[n];
		return t;
	}
	children(e) {
		let t = [];
		for (let n = e + 1; n < this.after[e]; n = this.after[n]) t.push(n);
		return t;
	}
	path(e) {
		let t = [e];
		for (; t[0];) t.unshift(this.parent[t[0]]);
		return t;
	}
	wide(e, t) {
		let n = [];
		for (let r = e; r < this.after[e];) {
			let e = this.ns[r] >= t;
			e && n.push(r), r = e ? r + 1 : this.after[r];
		}
		return n;
	}
	search(e) {
		let t = e.toLowerCase();
		return Uint8Array.from(this.block.names, (e) => +!!e.toLowerCase().includes(t));
	}
	holds(e, t) {
		return t > 0 && e[this.frame[t]] === 1;
	}
	matched(e, t) {
		let n = {
			ns: 0,
			branches: 0
		}, r = t;
		for (let i = t; i < this.after[t]; i++) if (this.holds(e, i)) {
			if (n.branches++, i < r) continue;
			n.ns += this.ns[i], r = this.after[i];
		}
		return n;
	}
}, to = {
	program: "#f6b26b",
	torch: "#a9cdf0",
	library: "#c9ced6",
	lostflops: "#b7dfb0"
};
function no(e) {
	let t = [...new Set(e)].filter((e) => e && e !== "line").sort();
	return new Map(t.map((e, t) => [e, Object.hasOwn(to, e) ? to[e] : at(t)]));
}
function ro(n) {
	let r = [...no(n)].map(([n, r]) => e("li", {}, t("svg", {
		width: 12,
		height: 12,
		"aria-hidden": "true"
	}, t("path", {
		d: "M0 0h12v12h-12z",
		fill: r.startsWith("--") ? `var(${r})` : r
	})), n)), i = e("li", { class: "muted" }, "Width is the time in a frame and everything it calls. Click to zoom in, press Escape to zoom out.");
	return e("ul", { class: "chart-legend" }, ...r, i);
}
// src/flame-painting.ts
var Q = 20, io = 80, ao = .7, oo = "12px ui-monospace, monospace", so = class {
	branches;
	visible = [];
	root = 0;
	surface = new L(() => this.draw());
	colours;
	names = null;
	marked = null;
	width = 0;
	constructor(e, t) {
		this.branches = e, this.colours = no(t);
	}
	get element() {
		return this.surface.element;
	}
	lay(e, t = this.width) {
		let { branches: n } = this;
		[this.root, this.width, this.marked] = [
			e,
			t,
			null
		], this.visible = n.wide(e, ao * n.ns[e] / Math.max(1, t));
		let r = this.visible.reduce((t, r) => Math.max(t, n.level[r] - n.level[e]), 0);
		return this.surface.resize(t, Q * (Math.min(r, 79) + 1)), this.draw(), Math.max(0, r + 1 - io);
	}
	highlight(e) {
		this.names = e, this.draw();
	}
	mark(e) {
		let { pen: t } = this.surface;
		if (this.marked = e, this.surface.restore(), e === null) return;
		let [n, r, i] = this.box(e);
		t.strokeStyle = F("--text"), t.lineWidth = 2, t.strokeRect(n + 1, r + 1, Math.max(i - 3, 1), 17);
	}
	at(e) {
		let t = this.element.getBoundingClientRect(), [n, r] = [e.clientX - t.left, e.clientY - t.top];
		for (let e of this.visible) {
			let [t, i, a] = this.box(e);
			if (t <= n && n < t + a && i <= r && r < i + Q) return e;
		}
		return null;
	}
	pointOf(e) {
		let [t, n, r] = this.box(e);
		return [t + Math.min(r / 2, 120), n + Q / 2];
	}
	draw() {
		let { pen: e } = this.surface;
		e.clearRect(0, 0, this.width, this.element.height), e.font = oo, e.textBaseline = "middle";
		let t = e.measureText("n").width, n = 0;
		for (let e of this.visible) n += Number(this.bar(e, t));
		this.element.dataset.drawn = String(n), this.surface.keep(), this.mark(this.marked);
	}
	bar(e, t) {
		let { pen: n } = this.surface, [r, i, a] = this.box(e);
		if (i >= 1600) return !1;
		let o = this.colour(e);
		n.globalAlpha = this.names && !this.branches.holds(this.names, e) ? .2 : 1, n.fillStyle = o, n.fillRect(r, i, Math.max(a - +(a > 2), .5), 19);
		let s = Math.floor((a - 8) / t);
		if (s >= 3) {
			let t = this.branches.name(e);
			n.fillStyle = n.globalAlpha < 1 ? F("--text") : st(o), n.globalAlpha = Math.max(n.globalAlpha, .7), n.fillText(t.length > s ? `${t.slice(0, s - 1)}…` : t, r + 4, i + Q / 2);
		}
		return n.globalAlpha = 1, !0;
	}
	colour(e) {
		let t = this.branches.kind(e);
		if (!e) return F("--idle");
		if (t === "line") return Qe(this.branches.name(e));
		let n = this.colours.get(t) ?? "--idle";
		return n.startsWith("--") ? F(n) : n;
	}
	box(e) {
		let { branches: t, root: n } = this, r = this.width / t.ns[n];
		return [
			(t.first[e] - t.first[n]) * r,
			Q * (t.level[e] - t.level[n]),
			t.ns[e] * r
		];
	}
};
// src/blocks/stacks.ts
function co(t, n) {
	let r = new eo(t, n.source);
	if (!r.ns[0]) return e("p", { class: "muted" }, "No data to plot.");
	let i = new lo(t, r), a = I("chart", (e) => i.resize(e));
	return a.append(i.painting.element, i.told.element), e("div", { class: "flame" }, i.tools, i.crumbs, a, i.deeper, ro(t.kinds));
}
var lo = class {
	branches;
	told = M();
	crumbs = e("div", {
		class: "crumbs",
		role: "navigation",
		"aria-label": "Parent frames"
	});
	deeper = e("p", {
		class: "muted",
		hidden: !0
	});
	tools;
	painting;
	matches = e("output", { class: "muted" });
	names = null;
	selected = null;
	constructor(t, n) {
		this.branches = n, this.painting = new so(n, t.kinds);
		let r = this.painting.element;
		r.setAttribute("role", "application"), r.setAttribute("aria-label", "Flame graph. Arrow keys move between frames, Enter zooms in, Escape zooms out."), r.addEventListener("pointermove", (e) => this.select(this.painting.at(e))), r.addEventListener("pointerleave", N(() => this.select(null))), r.addEventListener("click", (e) => this.zoom(this.painting.at(e))), r.addEventListener("focus", () => r.matches(":focus-visible") && this.select(this.selected ?? this.root)), r.addEventListener("blur", () => this.select(null)), r.addEventListener("keydown", (e) => this.key(e));
		let i = e("input", {
			type: "search",
			placeholder: "Search frames",
			"aria-label": "Search frames",
			input: () => this.search(i.value),
			keydown: (e) => e.key === "Escape" && e.stopPropagation()
		});
		this.tools = e("div", { class: "tools" }, i, this.matches);
	}
	resize(e) {
		this.shown(this.painting.lay(this.root, e));
	}
	get root() {
		return this.painting.root;
	}
	shown(e) {
		this.selected = null, this.deeper.hidden = !e, this.deeper.textContent = `${e} more ${e === 1 ? "level" : "levels"} below: click a frame to zoom in.`, this.crumbs.replaceChildren(...this.trail()), this.told.hide(), this.said();
	}
	select(e) {
		if (e === this.selected) return;
		if (this.selected = e, this.painting.mark(e), e === null) return this.told.hide();
		let { branches: t } = this, n = t.kind(e), r = [
			["time", w(t.ns[e])],
			["share of total", E(t.ns[e] / t.ns[0])],
			["samples", t.samples[e].toLocaleString("en-US")],
			["self time", w(t.own(e))]
		];
		this.root && r.splice(2, 0, ["share of view", E(t.ns[e] / t.ns[this.root])]), n && r.push(["code", n === "line" ? "ledger line" : n]), this.told.show(...this.painting.pointOf(e), t.name(e), r);
	}
	zoom(e) {
		e !== null && e !== this.root && this.shown(this.painting.lay(e));
	}
	key(e) {
		let t = this.next(e.key, this.selected ?? this.root);
		t !== void 0 && (e.preventDefault(), (e.key === "Enter" || e.key === "Escape" || e.key === "Home") && this.zoom(t), this.select(t));
	}
	next(e, t) {
		let { branches: n } = this;
		if (e === "Enter") return t;
		if (e === "Escape") return n.parent[this.root];
		if (e === "Home") return 0;
		if (e === "ArrowUp") return t === this.root ? t : n.parent[t];
		if (e === "ArrowDown") return this.ifVisible(n.children(t)[0]) ?? t;
		if (e !== "ArrowLeft" && e !== "ArrowRight") return;
		let r = t === this.root ? [t] : n.children(n.parent[t]);
		return this.ifVisible(r[r.indexOf(t) + (e === "ArrowLeft" ? -1 : 1)]) ?? t;
	}
	ifVisible(e) {
		return e !== void 0 && this.painting.visible.includes(e) ? e : void 0;
	}
	search(e) {
		this.names = e.trim() ? this.branches.search(e.trim()) : null, this.said(), this.painting.highlight(this.names);
	}
	said() {
		let e = this.names && this.branches.matched(this.names, this.root), t = e ? E(e.ns / this.branches.ns[this.root]) : "";
		this.matches.textContent = e ? `${uo(e.branches)}, ${t} of the time shown` : "";
	}
	trail() {
		let t = this.branches.path(this.root);
		return (t.length > 5 ? [
			t[0],
			null,
			...t.slice(-3)
		] : t).flatMap((t, n) => {
			let r = n ? [document.createTextNode(" > ")] : [];
			return t === null ? [...r, document.createTextNode("…")] : t === this.root ? [...r, e("strong", {}, this.branches.name(t))] : [...r, e("button", {
				type: "button",
				class: "link",
				click: () => this.zoom(t)
			}, this.branches.name(t))];
		});
	}
};
function uo(e) {
	return `${e.toLocaleString("en-US")} matching ${e === 1 ? "frame" : "frames"}`;
}
// src/blocks/strips.ts
function fo(t, n) {
	if (!t.rows.length || t.span <= 0) return e("p", { class: "muted" }, "Nothing to show.");
	let r = new qa(Di(t, (e) => n.source.numbers(e)), n.source.page.glossary, n.source.live);
	return document.addEventListener(Te, (e) => {
		r.showRank(e.detail) && (r.focus(), r.element.scrollIntoView({ block: "center" }));
	}), r.element;
}
// src/blocks/timeline.ts
var po = 22;
function mo(n) {
	let r = n.total.length, i = n.rows.flatMap(([e, t]) => t.some(Boolean) ? [{
		name: e,
		held: t,
		colour: P(e)
	}] : []);
	if (!r) return e("p", { class: "muted" }, "No data to plot.");
	let a = H("ns", `time since ${n.began}`, n.span), o = H("bytes", "memory", 1.08 * Math.max(...n.total)), s = M(), c = I("chart", (e, t) => {
		let r = Gr(a, o, e, Math.round(Math.max(240, Math.min(360, e * .4))));
		t.replaceChildren(new ho(n, i, r, s).element, s.element);
	}), l = i.map((n) => e("li", {}, t("svg", {
		width: 12,
		height: 12,
		"aria-hidden": "true"
	}, t("path", {
		d: "M0 0h12v12h-12z",
		fill: n.colour
	})), n.name)), u = n.rows.length - i.length, d = u ? e("li", { class: "muted" }, `${u} more at zero`) : null;
	return e("div", { class: "over-time" }, c, e("ul", { class: "chart-legend" }, ...l, d));
}
var ho = class {
	block;
	rows;
	frame;
	told;
	element;
	cursor = t("path", { class: "cursor" });
	column = null;
	constructor(e, n, r, i) {
		this.block = e, this.rows = n, this.frame = r, this.told = i, this.element = t("svg", {
			...Kr(r),
			tabindex: 0,
			role: "application",
			"aria-label": `${e.title || e.name}: bytes by owner over time. Arrow keys move through time.`,
			pointermove: (e) => this.pointed(e),
			pointerdown: (e) => this.pointed(e),
			pointerleave: N(() => this.tell(null)),
			focus: () => this.column === null && this.element.matches(":focus-visible") && this.tell(this.fullest()),
			blur: () => this.tell(null),
			keydown: (e) => this.key(e)
		}, Jr(r), ...this.areas(), ...this.marks(), this.top(), this.cursor);
	}
	edge(e) {
		return q(this.frame, e * this.block.span / this.block.total.length);
	}
	areas() {
		let e = this.block.total.map(() => 0);
		return this.rows.map((n) => {
			let r = e.map((e, t) => e + (n.held[t] ?? 0)), i = r.map((e, t) => `${t ? "V" : ""}${this.y(e)}H${this.x(t + 1)}`).join(""), a = [...e.keys()].reverse().map((t) => `V${this.y(e[t])}H${this.x(t)}`).join(""), o = `M${this.x(0)} ${i}${a}Z`;
			return r.forEach((t, n) => e[n] = t), t("path", {
				class: "area",
				d: o,
				fill: n.colour
			});
		});
	}
	x(e) {
		return this.edge(e).toFixed(1);
	}
	y(e) {
		return J(this.frame, e).toFixed(1);
	}
	marks() {
		let e = -Infinity;
		return this.block.marks.flatMap(([n, r], i) => {
			let a = q(this.frame, r), o = i ? String(n) : `${this.block.marked} ${n}`, s = a >= e && a < this.frame.left + this.frame.width;
			return s && (e = a + 7 * o.length + po), [t("path", {
				class: "mark",
				d: `M${a} ${this.frame.top}v${this.frame.height}`
			}), s ? t("text", {
				class: "mark",
				x: a + 1,
				y: this.frame.top - 4
			}, o) : t("g")];
		});
	}
	top() {
		if (this.block.top === null) return t("g");
		let e = Math.max(...this.block.total), [n, r] = [q(this.frame, this.block.top), J(this.frame, e)], i = n > this.frame.left + this.frame.width / 2;
		return t("g", { class: "top" }, t("path", { d: `M${n} ${r}l-5 -8h10z` }), t("text", {
			x: i ? n - 8 : n + 8,
			y: r - 1,
			"text-anchor": i ? "end" : "start"
		}, `peak ${T(e)}`));
	}
	fullest() {
		return this.block.total.indexOf(Math.max(...this.block.total));
	}
	pointed(e) {
		let t = e.clientX - this.element.getBoundingClientRect().left - this.frame.left, n = Math.floor(t / this.frame.width * this.block.total.length);
		this.tell(n >= 0 && n < this.block.total.length ? n : null);
	}
	key(e) {
		if (e.key === "Escape") return this.tell(null);
		let t = {
			ArrowLeft: -1,
			ArrowRight: 1,
			Home: -Infinity,
			End: Infinity
		}[e.key];
		t !== void 0 && (e.preventDefault(), this.tell(Math.max(0, Math.min(this.block.total.length - 1, (this.column ?? this.fullest()) + t))));
	}
	tell(e) {
		if (this.column = e, e === null) return this.cursor.setAttribute("d", ""), this.told.hide();
		let t = this.block.at[e], n = q(this.frame, t);
		this.cursor.setAttribute("d", `M${n} ${this.frame.top}v${this.frame.height}`);
		let r = this.rows.filter((t) => t.held[e]).reverse(), i = this.block.marks.filter(([, e]) => e <= t).pop();
		this.told.show(n, this.frame.top, `${w(t)}${i ? `, ${this.block.marked} ${i[0]}` : ""}`, [...r.map((t) => [t.name, T(t.held[e])]), ["total", T(this.block.total[e])]]);
	}
}, go = "https://ui.perfetto.dev", _o = 50, vo = 3e4, yo = "Opens ui.perfetto.dev, a third-party site, in a new tab and loads the trace there. Nothing is uploaded: the trace stays in your browser.";
async function bo(e, t) {
	let n = window.open(go);
	if (!n) throw Error("The browser blocked the new tab. Allow pop-ups for this page and try again.");
	let [r] = await Promise.all([e, xo(n)]).catch((e) => {
		throw n.close(), e;
	});
	n.postMessage({ perfetto: {
		buffer: r,
		title: t,
		fileName: `${t}.pftrace`
	} }, go);
}
function xo(e) {
	return new Promise((t, n) => {
		let r = () => {
			clearInterval(a), clearTimeout(o), window.removeEventListener("message", i);
		}, i = (n) => {
			n.source === e && n.origin === go && n.data === "PONG" && (r(), t());
		}, a = setInterval(() => e.postMessage("PING", go), _o), o = setTimeout(() => {
			r(), n(/* @__PURE__ */ Error("ui.perfetto.dev did not respond. To write the same trace to a file: lostflops export RUN --perfetto FILE"));
		}, vo);
		window.addEventListener("message", i);
	});
}
// src/blocks/trace.ts
function So(t, n) {
	let { live: r, page: i } = n.source;
	if (!r) return e("p", { class: "muted" }, "To write the trace: lostflops export RUN --perfetto FILE");
	let a = e("p", {
		class: "muted",
		role: "status"
	}), o = `${i.title}.perfetto-trace.gz`;
	async function s(e) {
		a.textContent = "Writing the trace…";
		try {
			await e, a.textContent = "";
		} catch (e) {
			a.textContent = e.message;
		}
	}
	return e("div", { class: "trace" }, e("p", {}, e("button", {
		type: "button",
		click: () => void s(r.perfetto().then((e) => Co(e, o)))
	}, "Download"), " ", e("button", {
		type: "button",
		click: () => void s(bo(r.perfetto(), i.title))
	}, "Open in the Perfetto UI")), e("p", { class: "muted" }, yo), a);
}
function Co(t, n) {
	let r = URL.createObjectURL(new Blob([t]));
	e("a", {
		href: r,
		download: n
	}).click(), setTimeout(() => URL.revokeObjectURL(r), 1e4);
}
// src/blocks/waterfall.ts
function wo(t) {
	let n = t.value !== null, r = n ? "device peak" : "the time of all ranks", i = Vn(n ? t.convention : "Hover over a bar, or reach it with Tab, to see what it means."), a = 100, o = t.bars.map((e, n) => {
		a -= e.points;
		let o = Do(e, a, n, t);
		return i.tells(o, e.name, Eo(e, r)), o;
	});
	return e("div", { class: "waterfall" }, To(t), ...o, ko(o.length > 0, r), i.element);
}
function To(t) {
	return t.value === null ? e("p", { class: "reached" }, ...m(t.reason)) : e("p", { class: "reached" }, e("b", { class: "value" }, E(t.value)), ` ${t.bars.at(-1)?.name.toUpperCase() ?? ""}`);
}
function Eo(e, t) {
	let n = u(e.name) ?? u(e.name.toUpperCase());
	return `${E(e.points / 100)} of ${t}${n ? `: ${n}` : ""}`;
}
function Do(n, r, i, a) {
	let o = Math.max(r, 0) / 100, [s, c, l] = [
		n.points / 100,
		`${100 * o}%`,
		`${r + n.points}%`
	], u = i === a.bars.length - 1, d = [i ? t("line", {
		class: "link",
		x1: l,
		x2: l,
		y1: 0,
		y2: "20%"
	}) : null, u ? null : t("line", {
		class: "link",
		x1: c,
		x2: c,
		y1: "80%",
		y2: "100%"
	})], f = t("svg", {
		y: "20%",
		height: "60%"
	}, ...Zn(o, s, Oo(n.name, u, a)));
	return e("div", {
		class: "fall",
		"data-bar": n.name
	}, e("span", { class: "name" }, n.name), e("span", { class: "points" }, E(s)), t("svg", { class: "track" }, ...d, f));
}
function Oo(e, t, n) {
	return t && n.value !== null ? "var(--good)" : e.startsWith("compute.") ? "color-mix(in srgb, var(--compute) 55%, var(--page))" : P(e);
}
function ko(t, n) {
	return t ? e("div", { class: "fall axis" }, e("span"), e("span"), Hn(n)) : null;
}
// src/blocks/index.ts
var Ao = {
	Findings: Pe,
	HeatMap: nn,
	Knobs: Pn,
	Lines: $n,
	Pairs: Er,
	Plot: ii,
	Portions: _i,
	Section: Dr,
	Spans: Xa,
	Sql: Qa,
	Stacks: co,
	Strips: fo,
	Table: Cr,
	Timeline: mo,
	Trace: So,
	Waterfall: wo
};
function jo(t, n) {
	let r = t.title ? e("h3", {}, ...p(t.title)) : null;
	return e("section", {
		class: `block ${t.kind}`,
		"data-block": t.name
	}, r, Mo(t, n));
}
function Mo(t, n) {
	try {
		return Ao[t.kind](t, n);
	} catch (t) {
		return console.error(t), e("p", { class: "undrawn" }, `Could not draw this: ${String(t)}`);
	}
}
// src/article.ts
var No = class {
	result;
	context;
	element;
	heading;
	blocks;
	drawn = !1;
	constructor(t, n) {
		this.result = t, this.context = n, this.heading = e("h2", { tabindex: -1 }, ...p(t.title)), this.blocks = e("div", { class: t.blocks.length ? "blocks waiting" : "blocks" }), this.element = e("article", { id: t.name }, this.heading, e("p", { class: "verdict" }, ...m(t.verdict)), this.blocks, ...t.notes.length ? [Po(t.notes)] : [], t.next_command ? e("p", { class: "next" }, "Next: ", an(t.next_command)) : null);
	}
	get name() {
		return this.result.name;
	}
	draw() {
		if (!this.drawn) {
			this.drawn = !0, this.blocks.classList.remove("waiting");
			for (let e of this.result.blocks) this.blocks.append(jo(e, this.context));
		}
	}
};
function Po(t) {
	return e("ul", {
		class: "notes",
		"aria-label": "Notes"
	}, ...t.map((t) => e("li", {}, ...m(t))));
}
// src/keys.ts
var Fo = [
	["j", "next result"],
	["k", "previous result"],
	["/", "search the visible table or timeline"],
	["?", "show this help"],
	["Esc", "close a dialog or tooltip, leave a search box, zoom out"]
];
function Io(e) {
	document.addEventListener("keydown", (t) => {
		if (t.ctrlKey || t.metaKey || t.altKey || t.defaultPrevented) return;
		let n = t.target;
		if (t.key === "Escape" && n.matches("input[type=search]") && n.blur(), !(n.matches("input, select, textarea, [contenteditable]") || e.help.open)) {
			if (t.key === "j") e.jump(1);
			else if (t.key === "k") e.jump(-1);
			else if (t.key === "?") e.help.showModal();
			else if (t.key === "/") Lo(e.current());
			else return;
			t.preventDefault();
		}
	});
}
function Lo(e) {
	let t = [...document.querySelectorAll("main input[type=search]")], n = t.find((e) => {
		let { top: t, bottom: n } = e.getBoundingClientRect();
		return n > 0 && t < innerHeight;
	}), r = t.find((e) => e.getBoundingClientRect().top > 0);
	(n ?? t.find((t) => e.contains(t)) ?? r)?.focus();
}
// src/help.ts
function Ro() {
	let t = e("dialog", {
		class: "help-dialog",
		"aria-label": "Keyboard shortcuts and glossary"
	}, e("button", {
		type: "button",
		class: "close",
		click: () => t.close()
	}, "close"), e("h2", {}, "Keyboard shortcuts"), e("dl", { class: "keys" }, ...Fo.flatMap(([t, n]) => [e("dt", {}, e("kbd", {}, t)), e("dd", {}, n)])), e("h2", {}, "Glossary"), e("dl", { class: "words" }, ...d().flatMap(([t, n]) => [e("dt", {}, t), e("dd", {}, n)])));
	return t.addEventListener("click", (e) => {
		e.target === t && t.close();
	}), t;
}
// src/theme.ts
var zo = [
	"auto",
	"light",
	"dark"
], Bo = "lostflops.theme";
function Vo() {
	let t = e("select", {
		"aria-label": "Theme",
		class: "theme",
		change: () => Uo(n())
	}), n = () => t.value;
	return t.append(...zo.map((t) => e("option", { value: t }, t))), t.value = Wo(), Uo(n()), matchMedia("(prefers-color-scheme: dark)").addEventListener("change", et), addEventListener("beforeprint", () => Ho("light")), addEventListener("afterprint", () => Ho(n())), t;
}
function Ho(e) {
	document.documentElement.dataset.theme = e, et();
}
function Uo(e) {
	try {
		localStorage.setItem(Bo, e);
	} catch {}
	Ho(e);
}
function Wo() {
	try {
		return zo.find((e) => e === localStorage.getItem(Bo)) ?? "auto";
	} catch {
		return "auto";
	}
}
// src/shell.ts
var Go = "800px", Ko = 1e3, qo = class {
	context;
	articles = [];
	standing = e("a", {
		class: "standing",
		title: "Data quality"
	});
	links = e("ul");
	nav = e("nav", { "aria-label": "Results" }, this.links);
	main = e("main", {
		id: "results",
		tabindex: -1
	});
	landed = "";
	near;
	seen;
	constructor(t, n) {
		this.context = { source: n }, l(n.page.glossary), n.page.standing && this.standing.append("Checking data quality…");
		let r = Ro();
		t.append(e("a", {
			class: "skip",
			href: "#results"
		}, "Skip to results"), e("header", { class: "top" }, e("h1", { title: n.page.title }, n.page.title), this.standing, Vo(), e("button", {
			type: "button",
			class: "help",
			"aria-label": "Keyboard shortcuts and glossary",
			click: () => r.showModal()
		}, "?")), e("div", { class: "body" }, this.nav, this.main), r), _();
		for (let [e, t] of n.page.missing) this.miss(e, t);
		this.near = new IntersectionObserver((e) => this.draw(e), { rootMargin: Go }), this.seen = new IntersectionObserver(() => this.mark(), { rootMargin: "-60px 0px -60% 0px" }), Io({
			help: r,
			jump: (e) => this.jump(e),
			current: () => this.current().element
		}), addEventListener("hashchange", () => this.land()), addEventListener("beforeprint", () => this.articles.forEach((e) => e.draw()));
	}
	add(t) {
		let n = new No(t, this.context);
		this.articles.push(n), this.main.insertBefore(n.element, this.main.querySelector(".missing"));
		let r = t.blocks.length ? {} : {
			class: "bare",
			title: "No charts or tables; the text says why."
		}, i = e("li", {}, e("a", {
			href: `#${t.name}`,
			...r
		}, t.title));
		this.links.insertBefore(i, this.links.querySelector(".last")), t.name === this.context.source.page.standing && (this.standing.replaceChildren(t.verdict), this.standing.setAttribute("href", `#${t.name}`)), this.near.observe(n.element), this.seen.observe(n.element);
	}
	miss(t, n) {
		let r = this.main.querySelector(".missing ul");
		if (!r) {
			r = e("ul");
			let t = "Not available";
			this.main.append(e("article", {
				class: "missing",
				id: "missing"
			}, e("h2", {}, t), r)), this.links.append(e("li", { class: "last" }, e("a", { href: "#missing" }, t)));
		}
		r.append(e("li", {}, e("b", {}, ...p(t)), `: ${n}`));
	}
	ready() {
		this.landed !== location.hash && this.land(), document.documentElement.dataset.ready = "yes", this.drawRest(0);
	}
	draw(e) {
		for (let { isIntersecting: t, target: n } of e) t && this.articles.find((e) => e.element === n)?.draw();
	}
	drawRest(e) {
		let t = this.articles[e];
		t && (window.requestIdleCallback ?? ((e) => setTimeout(e, 50)))(() => {
			t.draw(), this.drawRest(e + 1);
		});
	}
	land() {
		let e = this.articles.findIndex(({ name: e }) => `#${e}` === location.hash), t = this.articles[e], n = t?.element ?? (location.hash === "#missing" ? this.main.querySelector(".missing") : null);
		if (n) {
			this.landed = location.hash;
			for (let n of t ? this.articles.slice(0, e + 1) : this.articles) n.draw();
			n.scrollIntoView(), this.stay(n), t?.heading.focus({ preventScroll: !0 }), this.mark();
		}
	}
	stay(e) {
		let t = new ResizeObserver(() => e.scrollIntoView());
		t.observe(this.main);
		let n = () => t.disconnect();
		for (let e of [
			"wheel",
			"pointerdown",
			"keydown"
		]) addEventListener(e, n, {
			once: !0,
			passive: !0
		});
		setTimeout(n, Ko);
	}
	jump(e) {
		let t = this.articles.indexOf(this.current()) + e, n = this.articles[Math.max(0, Math.min(t, this.articles.length - 1))];
		n && (location.hash === `#${n.name}` ? this.land() : location.replace(`#${n.name}`));
	}
	current() {
		let e = this.articles.filter(({ element: e }) => e.getBoundingClientRect().top < innerHeight / 4);
		return e[e.length - 1] ?? this.articles[0];
	}
	mark() {
		if (!this.articles.length) return;
		let e = `#${this.current().name}`;
		for (let t of this.links.querySelectorAll("a")) t.getAttribute("href") === e ? t.hasAttribute("aria-current") || (t.setAttribute("aria-current", "true"), this.nav.scrollLeft = t.offsetLeft - this.nav.clientWidth / 3) : t.removeAttribute("aria-current");
	}
};
// src/source.ts
function Jo() {
	return document.querySelector("script.data") !== null;
}
async function Yo() {
	return Xo([...document.querySelectorAll("script.data")].map((e) => e.textContent ?? ""));
}
async function Xo(e) {
	let { data: t, numbers: n } = await Zo(e);
	return {
		page: t,
		numbers: n
	};
}
async function Zo(e) {
	let [t, ...n] = await Promise.all(e.map(Qo));
	return {
		data: JSON.parse(new TextDecoder().decode(t)),
		blobs: n.length,
		numbers: (e) => $o(n[e.blob], e.type)
	};
}
async function Qo(e) {
	let t = atob(e), n = new Uint8Array(t.length);
	for (let e = 0; e < n.length; e++) n[e] = t.charCodeAt(e);
	let r = new Blob([n]).stream().pipeThrough(new DecompressionStream("deflate"));
	return new Uint8Array(await new Response(r).arrayBuffer());
}
function $o(e, t) {
	if (t === "u1") return e;
	let n = e.buffer;
	return t === "u4" ? new Uint32Array(n) : new Float64Array(n);
}
// src/server.ts
var es = "lostflops-token", ts = class extends Error {}, $ = class extends Error {};
function ns() {
	let e = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
	return e && (sessionStorage.setItem(es, e), history.replaceState(null, "", location.pathname)), e ?? sessionStorage.getItem(es) ?? "";
}
var rs = class {
	token;
	changed;
	run = "";
	constructor(e, t) {
		this.token = e, this.changed = t;
	}
	async packed(e, t = {}) {
		return Zo(await (await this.ask(e, t)).json());
	}
	async json(e, t = {}) {
		return await (await this.ask(e, t)).json();
	}
	async bytes(e) {
		return (await this.ask(e, {})).arrayBuffer();
	}
	async ask(e, { parameters: t, body: n, signal: r }) {
		let i = t ? `?${new URLSearchParams(t)}` : "", a = { Authorization: `Bearer ${this.token}` };
		n && (a["Content-Type"] = "application/json");
		let o = await fetch(e + i, {
			method: n ? "POST" : "GET",
			headers: a,
			body: n ? JSON.stringify(n) : null,
			signal: r ?? null
		}).catch((e) => {
			throw r?.aborted ? e : new $("The server is not responding.");
		});
		if (!o.ok) throw new ts(await is(o));
		return this.notice(o.headers.get("Lostflops-Run") ?? ""), o;
	}
	notice(e) {
		this.run && e && e !== this.run && this.changed(), this.run = e || this.run;
	}
};
async function is(e) {
	return (await e.json().catch(() => ({}))).error ?? `The server returned HTTP status ${e.status}.`;
}
// src/live.ts
var as = 2, os = 5e3, ss = "The server is not responding. This page keeps what it shows. Run lostflops serve again and open the address it prints.", cs = "The run was rewritten after this page was opened. Reload the page.";
async function ls(t) {
	let n = e("p", {
		class: "live-status",
		role: "status"
	}, "Opening the run…");
	document.body.append(n);
	let r = (e, t = !1) => {
		n.textContent = e, n.hidden = !e, n.classList.toggle("bad", t);
	}, i = new rs(ns(), () => r(cs, !0));
	try {
		await us(t, i, r);
	} catch (e) {
		r(e instanceof $ ? ss : String(e.message), !0), document.documentElement.dataset.ready = "yes";
	}
}
async function us(e, t, n) {
	let { page: r, questions: i, tables: a } = await t.json("/api/questions");
	document.title = `${r.title} · lostflops`;
	let o = new fs(r, t), s = new qo(e, o), c = location.hash.slice(1), l = [], u = (e) => {
		let t = i[e];
		t && !l[e] && (l[e] = o.result(t), l[e].catch(() => void 0));
	};
	for (let [e, t] of i.entries()) {
		for (let t = e; t < e + as; t++) u(t);
		n(`Computing: ${t.replaceAll("_", " ")} (${e + 1} of ${i.length})…`);
		try {
			let t = await l[e];
			for (let [e, n] of t.missing) s.miss(e, n);
			for (let e of t.results) s.add(e);
			(e === 0 || t.results.some((e) => e.name === c)) && s.ready();
		} catch (e) {
			if (e instanceof $) throw e;
			s.miss(t, e.message);
		}
	}
	s.add(hs(a)), s.add(ms), s.ready(), n(""), document.documentElement.dataset.complete = "yes", ds(t, n);
}
function ds(e, t) {
	let n = !1;
	setInterval(() => {
		document.hidden || e.json("/api/alive").then(() => {
			n && t(""), n = !1;
		}, (e) => {
			n = !0, t(e instanceof $ ? ss : e.message, !0);
		});
	}, os);
}
var fs = class {
	page;
	server;
	live;
	blobs = [];
	constructor(e, t) {
		this.page = e, this.server = t, this.live = {
			events: (e) => t.packed("/api/events", { parameters: {
				ranks: e.ranks.join(","),
				start: String(Math.floor(e.start)),
				stop: String(Math.ceil(e.stop)),
				most: String(e.most)
			} }),
			whatif: (e) => t.json("/api/whatif", { body: { changes: e } }),
			sql: async (e, n) => (await t.packed("/api/sql", {
				body: { query: e },
				signal: n
			})).data.results[0],
			perfetto: () => t.bytes("/api/perfetto")
		};
	}
	async result(e) {
		let t = await this.server.packed("/api/result", { parameters: { name: e } }), n = this.blobs.length;
		for (let e = 0; e < t.blobs; e++) this.blobs.push((n) => t.numbers({
			blob: e,
			type: n
		}));
		return ps(t.data, n);
	}
	numbers(e) {
		return this.blobs[e.blob](e.type);
	}
};
function ps(e, t) {
	if (Array.isArray(e)) return e.map((e) => ps(e, t));
	if (typeof e != "object" || !e) return e;
	let n = Object.entries(e).map(([e, n]) => [e, e === "blob" && typeof n == "number" ? n + t : ps(n, t)]);
	return Object.fromEntries(n);
}
var ms = {
	name: "perfetto",
	title: "Perfetto",
	verdict: "A Perfetto trace of all ranks on one clock, with separate tracks for waits, transfers and the time ledger.",
	notes: [],
	next_command: "",
	blocks: [{
		kind: "Trace",
		name: "trace",
		title: ""
	}]
};
function hs(e) {
	return {
		name: "sql",
		title: "SQL",
		verdict: "Query the run's tables, read-only. Times are integer ns, sizes are bytes.",
		notes: [],
		next_command: "",
		blocks: [{
			kind: "Sql",
			name: "sql",
			title: "",
			tables: e
		}]
	};
}
// src/main.ts
async function gs() {
	let e = document.getElementById("app");
	if (!Jo()) return ls(e);
	let t = await Yo(), n = new qo(e, t);
	for (let e of t.page.results) n.add(e);
	n.ready();
}
gs();
