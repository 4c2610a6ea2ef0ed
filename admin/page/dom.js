// Making elements, and words for times, sizes and states. Text only ever goes in as text.

export function h(tag, props, ...children) {
	const el = document.createElement(tag);
	for (const [name, value] of Object.entries(props || {})) {
		if (value === undefined || value === null || value === false) continue;
		if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
		else if (name === "class") el.className = value;
		else if (name === "value" || name === "checked" || name === "max") el[name] = value;
		else el.setAttribute(name, value === true ? "" : String(value));
	}
	el.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false));
	return el;
}

// Only what really differs is replaced, and whoever had the focus gets it back.
const drawn = new WeakMap();

export function draw(parent, data, make) {
	const key = JSON.stringify(data);
	if (drawn.get(parent) === key) return;
	drawn.set(parent, key);
	const focused = parent.contains(document.activeElement) && document.activeElement.dataset.key;
	parent.replaceChildren(...[make(data)].flat(9).filter(Boolean));
	if (focused) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "long" });
const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function ago(seconds) {
	const d = seconds - Date.now() / 1000;
	const size = Math.abs(d);
	if (size < 45) return d > 5 ? "in a moment" : "just now";
	for (const [unit, length, upTo] of [["minute", 60, 3600], ["hour", 3600, 86400], ["day", 86400, 2592000], ["month", 2592000, 31536000]])
		if (size < upTo) return relative.format(Math.round(d / length), unit);
	return relative.format(Math.round(d / 31536000), "year");
}

export function when(seconds) {
	if (!seconds) return h("span", { class: "quiet" }, "never");
	const date = new Date(seconds * 1000);
	return h("time", { datetime: date.toISOString(), title: absolute.format(date), "data-at": seconds }, ago(seconds));
}

export function bytes(n) {
	const units = ["B", "kB", "MB", "GB", "TB"];
	let u = 0;
	for (; n >= 1000 && u < 4; u++) n /= 1000;
	return `${u ? n.toFixed(1) : n} ${units[u]}`;
}

export function duration(seconds) {
	if (seconds < 60) return `${seconds} s`;
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
	return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

// A digest whole to a program that copies it, short to the eye.
export function digest(text) {
	const hex = String(text || "").replace(/^sha256:/, "");
	return hex ? h("code", { class: "digest", title: `sha256:${hex}` }, hex.slice(0, 12)) : h("span", { class: "quiet" }, "—");
}

const tones = {
	ok: "good", succeeded: "good", healthy: "good", verified: "good", on: "good", running: "good",
	error: "bad", failed: "bad", unreachable: "bad", unhealthy: "bad", gave_up: "bad", refused: "warn", audit_broken: "bad", audit_truncated: "bad",
	awaiting_approval: "wait", approved: "wait", executing: "wait", prepared: "wait", starting: "wait", stopping: "wait", backoff: "warn", intent: "wait",
	denied: "warn", outcome_unknown: "bad", expired: "idle", cancelled: "idle", revoked: "idle", stopped: "idle", off: "idle",
};
const marks = { good: "✓", bad: "✕", warn: "!", wait: "•", idle: "–" };

// Never colour alone: a mark and a word.
export function chip(state, text) {
	const tone = tones[state] || "idle";
	return h("span", { class: `chip ${tone}` }, h("span", { class: "mark", "aria-hidden": true }, marks[tone]), h("span", {}, text || String(state).replaceAll("_", " ")));
}

export function card(title, attrs, ...children) {
	const id = `t-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
	return h("section", { class: `card ${attrs?.class || ""}`, "aria-labelledby": id },
		h("div", { class: "card-head" }, h("h2", { id }, title), attrs?.aside || null), attrs?.intro ? h("p", { class: "quiet intro" }, attrs.intro) : null, ...children);
}

export function facts(pairs) {
	return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function empty(text) {
	return h("p", { class: "empty" }, text);
}

export function table(caption, heads, rows) {
	return h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
		h("table", {}, h("caption", { class: "sr" }, caption), h("thead", {}, h("tr", {}, heads.map((t) => h("th", { scope: "col" }, t)))),
			h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((c) => h("td", {}, c)))))));
}
