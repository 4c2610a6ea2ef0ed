// The page: connect, keep what is known up to date, draw the view that is open. The key lives in `endpoint` and nowhere else.
import { Endpoint, Trouble } from "./api.js";
import { ago, chip, draw, h } from "./dom.js";
import { views } from "./views.js";

const $ = (id) => document.getElementById(id);
const state = { status: null, policy: null, runtime: null, operations: new Map(), progress: new Map(), audit: null, chain: null, filter: { action: "", status: "" }, live: false, at: 0 };
let endpoint = null;
let stream = null;
let current = "overview";
let timer = 0;

// ---- what was done here: stays, where a toast would have gone ----

function note(tone, text, advice) {
	const list = $("journal-list");
	const time = new Date();
	list.prepend(h("li", { class: tone }, h("time", { datetime: time.toISOString() }, time.toLocaleTimeString()), h("span", {}, chip(tone === "bad" ? "error" : tone === "wait" ? "executing" : "ok", tone === "bad" ? "failed" : tone === "wait" ? "waiting" : "done"), " ", text, advice ? h("span", { class: "quiet" }, ` — ${advice}`) : null)));
	while (list.children.length > 200) list.lastChild.remove();
	$("journal-last").textContent = text;
}

// ---- asking ----

const slices = {
	status: ["/admin/status", (a) => (state.status = a)],
	policy: ["/admin/policy", (a) => (state.policy = a)],
	runtime: ["/admin/runtime", (a) => (state.runtime = a)],
	operations: ["/admin/operations?limit=60", (a) => (state.operations = new Map(a.operations.map((o) => [o.operation_id, o])))],
	chain: ["/admin/audit/chain", (a) => (state.chain = a)],
	audit: [null, (a) => (state.audit = a)],
};

function auditPath() {
	const q = new URLSearchParams({ limit: "100" });
	for (const [name, value] of Object.entries(state.filter)) if (value) q.set(name, value);
	return `/admin/audit?${q}`;
}

async function load(...names) {
	const asked = endpoint;
	await Promise.all(names.map(async (name) => {
		const [path, take] = slices[name];
		const answer = await asked.request("GET", path || auditPath());
		if (asked === endpoint) take(answer);
	}));
	state.at = Date.now() / 1000;
	render();
}

// Several causes at once are one request.
const due = new Set();
function soon(...names) {
	names.forEach((n) => due.add(n));
	clearTimeout(timer);
	timer = setTimeout(() => {
		const list = [...due];
		due.clear();
		if (endpoint) load(...list).catch(lost);
	}, 150);
}

function refresh() {
	if (endpoint) soon("status", "policy", "runtime", "operations", ...(current === "audit" ? ["audit", "chain"] : []));
}

function lost(trouble) {
	if (!(trouble instanceof Trouble) || !endpoint) return;
	if (trouble.kind === "key") {
		disconnect();
		problem(trouble);
		return;
	}
	state.live = false;
	note("bad", trouble.title, trouble.advice);
	render();
}

// One change: says what it did, and shows the effect at once.
async function change(text, method, path, body) {
	try {
		const answer = await endpoint.request(method, path, body);
		if (answer?.status === "pending_approval") note("wait", `${text}: this widens the policy and waits for an approver`, `operation ${answer.operation_id}`);
		else note("good", text, answer?.policy_generation ? `policy generation ${answer.policy_generation}` : "");
		await load("status", "policy", "operations", "audit");
		return answer;
	} catch (error) {
		if (!(error instanceof Trouble)) throw error;
		note("bad", text.replace(/ (turned|replaced|removed|rotated|made) /, " was not $1 ").replace(/ (replaced|removed|rotated)$/, " was not $1"), `${error.title}: ${error.advice}`);
		if (error.kind === "key") lost(error);
		else await load("status").catch(() => {});
		render();
		return null;
	}
}

// Says exactly what will happen before it does; resolves to true only by the button that names it.
function confirm(title, effects, verb) {
	const dialog = $("dialog");
	return new Promise((resolve) => {
		dialog.replaceChildren(h("form", { method: "dialog" },
			h("h2", { id: "dialog-title" }, title),
			h("div", { id: "dialog-text" }, h("ul", {}, effects.map((e) => h("li", {}, e)))),
			h("div", { class: "actions" }, h("button", { value: "no", autofocus: true }, "Leave it as it is"), h("button", { class: "danger", value: "yes" }, verb))));
		dialog.returnValue = "no";
		dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
		dialog.showModal();
	});
}

// ---- what happens meanwhile ----

function onEvent(name, data) {
	state.live = true;
	if (name === "operation") {
		const before = state.operations.get(data.operation_id);
		state.operations.set(data.operation_id, data);
		if (data.finished_at || data.state !== "executing") state.progress.delete(data.operation_id);
		if (before && before.state !== data.state && data.feature === "runtime") soon("runtime", "status");
	} else if (name === "progress") state.progress.set(data.operation_id, data);
	else if (name === "policy") soon("status", "policy", "operations", ...(current === "audit" ? ["audit"] : []));
	else if (name === "runtime") soon("runtime", "status");
	render();
}

async function follow() {
	stream?.abort();
	const mine = (stream = new AbortController());
	for (let wait = 1000; endpoint && !mine.signal.aborted; wait = Math.min(wait * 2, 15000)) {
		try {
			await endpoint.events("/admin/events", (n, d) => {
				wait = 1000;
				onEvent(n, d);
			}, mine.signal);
		} catch (error) {
			if (mine.signal.aborted) return;
			if (error.kind === "key") return lost(error);
		}
		state.live = false;
		render();
		await new Promise((r) => setTimeout(r, wait));
		if (!mine.signal.aborted) refresh();
	}
}

// ---- connecting ----

function problem(trouble) {
	$("connect-problem").replaceChildren(h("div", { class: "problem", "data-kind": trouble.kind }, h("p", { class: "problem-title" }, trouble.title), h("p", {}, trouble.advice)));
}

async function connect(event) {
	event.preventDefault();
	const button = event.submitter || event.target.querySelector("button");
	$("connect-problem").replaceChildren();
	let base;
	try {
		base = new URL($("endpoint").value).origin;
		if (!/^https?:/.test(base)) throw new Error("scheme");
	} catch {
		problem(new Trouble("address", "That is not an address", "It looks like http://127.0.0.1:8752"));
		return;
	}
	button.disabled = true;
	endpoint = new Endpoint(base, $("key").value.trim());
	try {
		await load("status", "policy", "runtime", "operations");
		$("key").value = "";
		$("connect").hidden = true;
		$("app").hidden = $("journal").hidden = $("connection").hidden = false;
		note("good", `Connected to ${base}`);
		go(location.hash.slice(1) || "overview");
		follow();
	} catch (error) {
		endpoint = null;
		problem(error instanceof Trouble ? error : new Trouble("page", "This page failed", String(error)));
	} finally {
		button.disabled = false;
	}
}

function disconnect() {
	stream?.abort();
	endpoint = null;
	Object.assign(state, { status: null, policy: null, runtime: null, audit: null, chain: null, live: false });
	state.operations.clear();
	state.progress.clear();
	$("connect").hidden = false;
	$("app").hidden = $("connection").hidden = true;
	$("view").replaceChildren();
	$("key").focus();
}

// ---- drawing ----

const context = { state, change, confirm, note, load };
let built = null;

function go(name) {
	current = views[name] ? name : "overview";
	history.replaceState(null, "", `#${current}`);
	built = views[current](context);
	$("view").replaceChildren(h("h1", { id: "view-title", tabindex: "-1" }, built.title), built.intro ? h("p", { class: "lead" }, built.intro) : "", built.element);
	document.title = `${built.title} · Operations Center`;
	if (current === "audit") soon("audit", "chain");
	render();
}

function pending() {
	return [...state.operations.values()].filter((o) => o.state === "awaiting_approval").length;
}

function render() {
	if (!endpoint || !state.status || !built) return;
	draw($("connection"), { live: state.live, base: endpoint.base }, ({ live, base }) => [
		h("span", { class: "where" }, chip(live ? "ok" : "backoff", live ? "live" : "reconnecting"), h("span", { class: "host" }, base.replace(/^https?:\/\//, ""))),
		h("button", { type: "button", "data-key": "refresh", onclick: refresh }, "Refresh"),
		h("button", { type: "button", "data-key": "disconnect", onclick: disconnect, title: "Forget the key and go back to the connect form" }, "Disconnect"),
	]);
	draw($("nav"), { current, pending: pending() }, ({ current: open, pending: n }) => h("ul", {}, Object.keys(views).map((name) => h("li", {}, h("a", { href: `#${name}`, "data-key": name, "aria-current": name === open ? "page" : null }, views[name].label, name === "operations" && n ? h("span", { class: "count" }, String(n), h("span", { class: "sr" }, " waiting")) : null)))));
	built.update(state);
}

// Served by the endpoint itself, or by another page's server?
$("endpoint").value = "http://127.0.0.1:8752";
fetch("/health", { cache: "no-store" }).then((r) => r.json()).then((a) => {
	if (a?.checks?.process === "hermes-admin") $("endpoint").value = location.origin;
}).catch(() => {});
$("connect-form").addEventListener("submit", connect);
addEventListener("hashchange", () => {
	if (!endpoint) return;
	go(location.hash.slice(1));
	$("view-title").focus();
});
addEventListener("focus", refresh);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
setInterval(() => {
	for (const el of document.querySelectorAll("time[data-at]")) el.textContent = ago(Number(el.dataset.at));
}, 10000);
$("key").focus();
