// The views. Each is built once when it is opened and then told what changed; what a person is typing in is never redrawn.
import { bytes, card, chip, digest, draw, duration, empty, facts, h, table, when } from "./dom.js";

const featureText = {
	local: ["Sandboxed commands", "Shell commands in an isolated workspace on this host"],
	docker: ["Docker", "Pull, run and look after containers"],
	ssh: ["SSH", "Commands on hosts that have a profile"],
	runtime: ["Service", "Install, upgrade, restart and back up the service"],
};
const serviceText = { broker: "Front door", approver: "Approver", installer: "Installer", fetcher: "Fetcher", docker: "Docker executor", ssh: "SSH executor" };
const phases = { fetch: "Downloading", unpack: "Unpacking", verify: "Verifying", activate: "Switching over", start: "Starting", health: "Waiting until healthy", backup: "Backing up", stop: "Stopping", restore: "Restoring" };
const slot = (cls) => h("div", { class: cls || "slot" });
const userName = (id) => (id === "0" ? "Local console (0)" : id);
const sorted = (map) => [...map.values()].sort((a, b) => b.created_at - a.created_at);
const waitingNow = (s) => [...s.operations.values()].filter((o) => o.state === "awaiting_approval").length;
const endsPending = (n) => (n === 0 ? "Nothing waits for approval, so nothing else ends." : n === 1 ? "The one request that waits for approval ends." : `All ${n} requests that wait for approval end.`);

// ---- operations ----

function progressOf(o, live) {
	const p = live || o.progress;
	if (o.state !== "executing" || !p?.phase) return null;
	const name = phases[p.phase] || p.phase;
	const text = p.total > 0 ? (p.unit === "files" ? `${p.done} of ${p.total} files` : `${bytes(p.done)} of ${bytes(p.total)}`) : "";
	return h("div", { class: "progress" },
		h("div", { class: "progress-text" }, h("span", {}, name), h("span", { class: "quiet" }, text)),
		h("progress", { "aria-label": `${name} ${text}`, max: p.total > 0 ? p.total : null, value: p.total > 0 ? p.done : undefined }));
}

function outcome(o) {
	const r = o.result;
	if (o.state === "succeeded" || o.state === "failed") {
		const took = r?.duration ?? (o.finished_at && o.started_at ? o.finished_at - o.started_at : null);
		return [took !== null && took !== undefined ? `took ${duration(took)}` : null, r && r.returncode ? `exit code ${r.returncode}` : null, r?.timed_out ? "timed out" : null, o.error || null].filter(Boolean).join(" · ");
	}
	if (o.state === "outcome_unknown") return "Stopped in between: it is not known whether it took effect, and it is never repeated by itself.";
	return o.error || "";
}

function operation(o, live) {
	return h("li", { class: `operation ${o.state}` },
		h("div", { class: "operation-head" },
			h("span", { class: "operation-name" }, featureText[o.feature]?.[0] || o.feature, h("span", { class: "quiet" }, ` ${o.action}`)),
			chip(o.state)),
		progressOf(o, live),
		h("p", { class: "operation-meta" },
			h("span", {}, "asked ", when(o.created_at), ` for ${userName(o.user_id)}`),
			o.state === "awaiting_approval" ? h("span", {}, "expires ", when(o.expires_at)) : null,
			o.decided_by?.length ? h("span", {}, `decided by ${o.decided_by.map(userName).join(", ")}${o.channel ? ` in ${o.channel}` : ""}`) : null,
			h("span", {}, "digest ", digest(o.digest))),
		outcome(o) ? h("p", { class: "operation-outcome" }, outcome(o)) : null);
}

function operationList(list, progress, none) {
	return list.length ? h("ul", { class: "operations" }, list.map((o) => operation(o, progress.get(o.operation_id)))) : empty(none);
}

function operationsView() {
	const waiting = slot(), recent = slot();
	return {
		title: "Operations", intro: "What was asked of this host. The full text of a request is shown to its approvers, in Telegram or a terminal, and decided there.",
		element: h("div", { class: "stack" }, card("Waiting for a decision", {}, waiting), card("Running and recent", {}, recent)),
		update(s) {
			const all = sorted(s.operations);
			const open = all.filter((o) => o.state === "awaiting_approval" || o.state === "prepared");
			const rest = all.filter((o) => !open.includes(o));
			draw(waiting, open, (l) => operationList(l, s.progress, "Nothing waits for a decision."));
			draw(recent, [rest, [...s.progress]], ([l]) => operationList(l, s.progress, "Nothing has been asked yet."));
		},
	};
}

// ---- overview ----

function troubles(s) {
	const list = [];
	if (s.status.policy_error) list.push(["Nothing is enabled: the policy can’t be used.", s.status.policy_error]);
	if (s.status.paused) list.push(["Everything is paused.", "Resume it in Telegram or with hermesctl."]);
	for (const [name, v] of Object.entries(s.status.services)) if (v.status !== "ok") list.push([`${serviceText[name] || name} is ${v.reachable ? "not well" : "unreachable"}.`, v.error || ""]);
	if (!s.status.bot_token_configured) list.push(["No Telegram bot is set.", "Approvals can only be given in a terminal on the host. Set a bot token under Policy & access.", "wait"]);
	if (!s.status.users.length) list.push(["Nobody may approve anything.", "Choose approvers under Policy & access."]);
	if (s.status.reviews?.due) list.push([`${s.status.reviews.due} ${s.status.reviews.due === 1 ? "review is" : "reviews are"} due.`, "See below.", "wait"]);
	const r = s.runtime?.runtime;
	if (r?.installed && r.desired === "running" && !r.health?.ok) list.push(["The service is not healthy.", r.trouble || r.health?.last_failure || ""]);
	for (const [name, held] of Object.entries(s.status.security)) if (held) list.push([`This process can reach what it must not: ${name.replaceAll("_", " ")}.`, "Run ./manage.sh doctor on the host."]);
	return list;
}

function services(all) {
	return h("ul", { class: "services" }, Object.keys(serviceText).filter((name) => all[name]).map((name) => [name, all[name]]).map(([name, v]) => h("li", {},
		h("div", {}, h("span", { class: "service-name" }, serviceText[name] || name), chip(v.reachable ? v.status : "unreachable", v.status === "ok" ? "well" : undefined)),
		v.error ? h("p", { class: "service-error" }, v.error) : h("p", { class: "quiet" }, v.checks?.started_at ? ["since ", when(v.checks.started_at)] : ""))));
}

function runtimeLine(r) {
	if (!r?.installed) return empty("Nothing is installed. On the host: ./manage.sh quickstart");
	return facts([["State", chip(r.health?.ok ? "healthy" : r.process?.state || "unknown")], ["Image", h("span", { class: "wrap" }, r.installed_image.split("@")[0])], ["Manifest", digest(r.manifest_digest)],
		r.staged ? ["Staged", h("span", { class: "wrap" }, (r.staged.image || "").split("@")[0] || "a release")] : null]);
}

const reviewText = { overdue: "review date has passed", check: "last check did not pass", scopes: "may do more than it needs", guardrails: "no guardrails", owner: "owner unknown", key: "key can’t be used", key_expired: "key outlived its purpose", key_unused: "key is not used" };

// Names alone: whose accounts these are and what they may do is shown on the host.
function reviews(r) {
	if (r?.error) return empty(`What is due can’t be read: ${r.error}`);
	if (!r?.items.length) return empty("Nothing is due.");
	return [h("ul", { class: "reviews" }, r.items.map((i) => h("li", {}, h("strong", {}, i.name), h("span", { class: "quiet" }, ` ${reviewText[i.kind] || i.kind}`)))), h("p", { class: "help" }, "On the host: ", h("code", {}, "hermesctl review"))];
}

function overviewView() {
	const hero = slot("hero"), grid = slot(), waiting = slot(), runtime = slot(), seen = slot(), due = slot();
	const more = (name, text) => h("button", { type: "button", class: "link", onclick: () => { location.hash = name; } }, text);
	return {
		title: "Overview",
		element: h("div", { class: "stack" }, hero,
			h("div", { class: "columns" },
				card("Waiting for a decision", { aside: more("operations", "All operations") }, waiting),
				card("Service", { aside: more("runtime", "Details") }, runtime)),
			card("Processes", { intro: "No single process can both decide and do." }, grid),
			card("Reviews", { intro: "Connected accounts and keys that somebody should look at." }, due),
			card("What this endpoint can reach", { intro: "Tried a moment ago, not asserted." }, seen)),
		update(s) {
			draw(hero, troubles(s), (list) => {
				const bad = list.some((t) => t[2] !== "wait");
				return [h("div", { class: `hero-line ${bad ? "bad" : "good"}` }, h("span", { class: "hero-mark", "aria-hidden": true }, bad ? "!" : "✓"), h("p", { class: "hero-text" }, bad ? "Something needs you" : list.length ? "All is well, with something to look at" : "All is well")),
					list.length ? h("ul", { class: "troubles" }, list.map(([t, why]) => h("li", {}, h("strong", {}, t), why ? h("span", {}, ` ${why}`) : null))) : h("p", { class: "quiet" }, `Policy generation ${s.status.policy_generation}. Version ${s.status.version}.`)];
			});
			draw(grid, s.status.services, services);
			const open = sorted(s.operations).filter((o) => o.state === "awaiting_approval" || o.state === "executing");
			draw(waiting, [open, [...s.progress]], ([l]) => operationList(l, s.progress, "Nothing waits."));
			draw(runtime, s.runtime?.runtime, runtimeLine);
			draw(due, s.status.reviews, reviews);
			draw(seen, s.status.security, (sec) => facts([["Signing key", sec.signing_key_mounted], ["Docker socket", sec.docker_socket_mounted], ["SSH credentials", sec.ssh_private_credentials_mounted], ["Bot token", sec.bot_token_readback]].map(([n, v]) => [n, chip(v ? "failed" : "ok", v ? "reachable" : "out of reach")])));
		},
	};
}

// ---- policy and access ----

// Switches stay the elements they are, so that one that is being pressed is never taken away; only their state is set.
function toggle(key, name, text, act) {
	return h("label", { class: "switch" }, h("span", {}, h("span", { class: "switch-name" }, name), text ? h("span", { class: "quiet" }, text) : null),
		h("input", { type: "checkbox", role: "switch", "data-key": key, onchange: (e) => act(e.target.checked) }));
}

function setSwitches(parent, on) {
	for (const input of parent.querySelectorAll("input[role=switch]")) input.checked = on.includes(input.dataset.key);
}

// Shown as pressed until the endpoint has answered, so that nothing redrawn meanwhile moves it back under the finger.
function pressed(list, item, on) {
	return on ? [...new Set([...list, item])] : list.filter((x) => x !== item);
}

function featureSwitches({ state, change }) {
	return Object.entries(featureText).map(([name, [title, text]]) => toggle(name, title, text, (on) => {
		state.status.features = pressed(state.status.features, name, on);
		const label = `${title} turned ${on ? "on" : "off"}`;
		if (name === "runtime") change(label, "PUT", "/admin/runtime", { enabled: on });
		else change(label, "PUT", "/admin/features", { features: state.status.features.filter((f) => f !== "runtime") });
	}));
}

function approverSwitches({ state, change }) {
	return [...state.status.allowed_users.map((id) => toggle(id, userName(id), "", (on) => {
		state.status.users = pressed(state.status.users, id, on);
		change(`${userName(id)} ${on ? "made an approver" : "removed from the approvers"}`, "PUT", "/admin/users", { users: state.status.users });
	})), h("p", { class: "help" }, "Someone who isn’t listed is added on the host: ", h("code", {}, "./manage.sh add-execution-user ID"))];
}

function tokenForm(ctx) {
	const { state, change, confirm } = ctx;
	const input = h("input", { type: "password", id: "bot-token", autocomplete: "off", spellcheck: "false", placeholder: "Paste a token here to replace it", oninput: () => { button.disabled = !input.value.trim(); } });
	const button = h("button", { type: "submit", class: "primary", disabled: true }, "Replace bot token");
	const now = h("p", { class: "quiet", id: "bot-state" });
	const clear = h("button", { type: "button", onclick: async () => {
		if (await confirm("Remove the bot token?", ["Nobody can approve in Telegram any more; only terminals on the host are left.", endsPending(waitingNow(state))], "Remove the bot token")) change("Bot token removed", "POST", "/admin/bot-token/clear");
	} }, "Remove token…");
	const form = h("form", { autocomplete: "off", onsubmit: async (e) => {
		e.preventDefault();
		const token = input.value.trim();
		if (!token || !(await confirm("Replace the bot token?", ["The bot with the old token is no longer listened to: its buttons stop working.", endsPending(waitingNow(state)), "The token goes to the approver and can’t be read back."], "Replace the bot token"))) return;
		const done = await change("Bot token replaced", "PUT", "/admin/bot-token", { token });
		if (done) input.value = "";
		button.disabled = !input.value;
	} }, h("label", { for: "bot-token" }, "New token from @BotFather"), input, h("div", { class: "actions" }, button, clear));
	return { element: [now, form], update(s) {
		const c = s.status.services.approver?.checks || {};
		draw(now, [s.status.bot_token_configured, c.bot_state], ([set, is]) => set ? ["A token is set. ", chip(is === "ok" ? "ok" : is === "starting" ? "starting" : "error", is === "ok" ? "the bot answers" : String(is || "").replaceAll("_", " "))] : ["No token is set."]);
		clear.hidden = !s.status.bot_token_configured;
	} };
}

function rotation(ctx) {
	const { state, change, confirm } = ctx;
	return h("button", { type: "button", class: "danger", onclick: async () => {
		if (await confirm("Make a new control secret?", ["The old secret stops working at once.", "Clients that read it from their file go on without a restart; one that keeps a copy must be given the new file.", endsPending(waitingNow(state))], "Make a new control secret")) change("Control secret rotated", "POST", "/admin/rotate-control-secret", {});
	} }, "Make a new control secret…");
}

function differenceText(d) {
	if (d.added) return [d.added.length ? `${d.field} added: ${d.added.join(", ")}` : "", d.removed.length ? `${d.field} removed: ${d.removed.join(", ")}` : ""].filter(Boolean).join("; ");
	if (d.field === "quorum") return Object.keys(d.to).filter((k) => d.from[k] !== d.to[k]).map((k) => `quorum of ${k}: ${d.from[k]} → ${d.to[k]}`).join("; ");
	return `${d.field}: ${d.from} → ${d.to}`;
}

function policyHistory(p) {
	return p?.history?.length ? h("ol", { class: "history", tabindex: "0", "aria-label": "Policy history" }, p.history.slice(0, 40).map((e, i) => h("li", {},
		h("div", { class: "history-head" }, h("span", { class: "generation" }, `Generation ${e.generation}`), h("span", { class: "quiet" }, when(e.ts), e.by === "admin" ? " by this endpoint" : " on the host")),
		h("p", {}, e.differences.length ? e.differences.map((d) => h("span", { class: "difference" }, differenceText(d))) : i === p.history.length - 1 ? "The oldest that is known." : "Same rules; earlier approvals were ended (a secret was changed).")))) : empty("No change is known yet.");
}

function policyView(ctx) {
	const features = slot(), users = slot(), quorum = slot(), history = slot();
	const token = tokenForm(ctx);
	return {
		title: "Policy & access", intro: "Every change raises the policy generation: grants and requests from before it end.",
		element: h("div", { class: "stack" },
			h("div", { class: "columns" }, card("Features", { intro: "What may be asked for at all." }, features), card("Approvers", { intro: "Who may decide." }, users)),
			h("div", { class: "columns" }, card("Approval bot", {}, token.element), card("Control secret", { intro: "What agents show to the broker. It is never shown here." }, rotation(ctx), quorum)),
			card("Policy history", {}, history)),
		update(s) {
			draw(features, 0, () => featureSwitches(ctx));
			draw(users, s.status.allowed_users, () => approverSwitches(ctx));
			setSwitches(features, s.status.features);
			setSwitches(users, s.status.users);
			draw(quorum, [s.status.quorum, s.status.widening_needs_grant], ([q, grant]) => [q ? h("p", { class: "help" }, "Approvals needed: ", Object.entries(q).map(([k, n]) => `${k} ${n}`).join(", "), ".") : null, h("p", { class: "help" }, grant ? "Widening the policy waits for an approver." : "Widening the policy takes effect at once (admin.widening_needs_grant is off).")]);
			draw(history, s.policy?.history, () => policyHistory(s.policy));
			token.update(s);
		},
	};
}

// ---- the service ----

function checks(health) {
	return h("ul", { class: "checks" }, Object.entries(health?.checks || {}).map(([name, v]) => h("li", {}, chip(v === true || v === "ok" || /^(200|401|ok)/.test(String(v)) ? "ok" : v === "not checked" ? "off" : v === false ? "failed" : "ok", name.replaceAll("_", " ")), typeof v === "string" && v !== "ok" ? h("span", { class: "quiet" }, v) : null)));
}

function releaseCard(title, digestText, image, extra) {
	return h("div", { class: "release" }, h("p", { class: "release-title" }, title), h("p", { class: "wrap" }, image || "—"), h("p", {}, digest(digestText)), extra || null);
}

function flow(r) {
	if (!r?.installed) return empty("Nothing is installed. On the host: ./manage.sh quickstart");
	const configured = r.configured_digest && !r.installed_image.includes(r.configured_digest);
	const next = r.staged ? releaseCard("Staged", r.staged.manifest_digest || r.staged.release, (r.staged.image || "").split("@")[0], r.staged.progress ? h("progress", { "aria-label": "Staging" }) : h("p", { class: "help" }, "Switch with ./manage.sh update"))
		: configured ? releaseCard("Configured", r.configured_digest, r.image.split("@")[0], h("p", { class: "help" }, "Look at it with ./manage.sh update --plan, upgrade with ./manage.sh update")) : null;
	return h("div", { class: "flow" }, releaseCard("Current", r.manifest_digest, r.installed_image.split("@")[0], chip(r.health?.ok ? "healthy" : r.process?.state || "unknown")), h("span", { class: "arrow", "aria-hidden": true }, "→"), next || h("div", { class: "release none" }, h("p", { class: "release-title" }, "Nothing staged"), h("p", { class: "quiet" }, "What runs is what is configured.")));
}

function releases(r) {
	if (!r?.releases?.length) return empty("No release is on disk.");
	return table("Releases on disk", ["Release", "Image", "Role"], r.releases.map((x) => [digest(x.manifest_digest), h("span", { class: "wrap" }, (x.image || "").split("@")[0]), x.current ? chip("on", "current") : x.previous ? chip("idle", "to go back to") : ""]));
}

function backups(a) {
	if (a?.backups_error) return h("p", { class: "problem" }, a.backups_error);
	if (!a?.backups?.length) return empty("No backup yet. On the host: ./manage.sh backup");
	return table("Backups", ["Backup", "Size", "Verified", "Last drill"], a.backups.map((b) => [h("span", { class: "wrap" }, b.name, b.encrypted ? h("span", { class: "quiet" }, " encrypted") : null), bytes(b.size || 0), when(b.last_verified), b.drill ? h("span", {}, chip(b.drill.ok ? "ok" : "failed"), " ", when(b.drill.at || b.drill.finished_at)) : h("span", { class: "quiet" }, "never")]));
}

function healthHistory(a) {
	if (!a?.history?.length) return empty("Nothing is known yet.");
	return h("ol", { class: "history", tabindex: "0", "aria-label": "Health history" }, a.history.slice(0, 30).map((e) => h("li", {}, h("div", { class: "history-head" }, chip(e.ok ? "healthy" : e.state), h("span", { class: "quiet" }, when(e.ts), e.release ? [" release ", digest(e.release)] : null)), e.reason ? h("p", {}, e.reason) : null)));
}

function runtimeView() {
	const head = slot(), run = slot(), about = slot(), rel = slot(), bak = slot(), hist = slot();
	return {
		title: "Service", intro: "The release that runs, what it could change to, and what there is to go back to. Changes are asked for on the host or by an agent, and decided by an approver.",
		element: h("div", { class: "stack" }, card("Release", {}, head, run), h("div", { class: "columns" }, card("Health", {}, about), card("Health history", {}, hist)), card("Releases on disk", {}, rel), card("Backups", {}, bak)),
		update(s) {
			const r = s.runtime?.runtime;
			draw(head, r, flow);
			const live = sorted(s.operations).filter((o) => o.feature === "runtime" && (o.state === "executing" || o.state === "awaiting_approval"));
			draw(run, [live, [...s.progress]], ([l]) => l.length ? operationList(l, s.progress, "") : "");
			draw(about, r, (x) => x?.installed ? [facts([["Process", chip(x.process?.state || "unknown")], ["Since", when(x.process?.started_at)], ["Restarts", String(x.process?.restarts ?? 0)], ["Isolation", x.isolation || "—"], ["Address", h("span", { class: "wrap" }, x.address || "—")], ["MCP tools", (x.health?.tools || []).join(", ") || "—"]]), checks(x.health), x.trouble ? h("p", { class: "problem" }, x.trouble) : null] : empty("Nothing runs."));
			draw(hist, s.runtime?.history, () => healthHistory(s.runtime));
			draw(rel, r?.releases, () => releases(r));
			draw(bak, [s.runtime?.backups, s.runtime?.backups_error], () => backups(s.runtime));
		},
	};
}

// ---- hosts ----

function hostsView() {
	const list = slot();
	return {
		title: "SSH profiles", intro: "Hosts that commands can be asked for. Keys and passwords stay with the SSH executor; profiles are made on the host.",
		element: h("div", { class: "stack" }, card("Profiles", {}, list, h("p", { class: "help" }, "Make one: ", h("code", {}, "./manage.sh add-ssh-profile NAME"), " · check a host’s key: ", h("code", {}, "./manage.sh verify-ssh-profile NAME")))),
		update(s) {
			draw(list, [s.status.ssh_profiles, s.status.services.ssh?.checks?.profiles_broken], ([p, broken]) => [p.length ? table("SSH profiles", ["Name", "Signs in with"], p.map((x) => [x.name, x.auth === "password" ? "a password" : "a key"])) : empty("There is no profile yet."), broken > 0 ? h("p", { class: "problem" }, `${broken} more can’t be used; ./manage.sh doctor says why.`) : null]);
		},
	};
}

// ---- audit ----

function detailText(d) {
	const plain = (v) => (Array.isArray(v) ? v.join(", ") || "none" : typeof v === "string" ? v : JSON.stringify(v));
	if (!d) return "";
	const both = "old" in d && "new" in d ? h("span", { class: "detail" }, plain(d.old), h("span", { class: "quiet" }, " → "), plain(d.new)) : null;
	return [both, ...Object.entries(d).filter(([k]) => !both || (k !== "old" && k !== "new")).map(([k, v]) => h("span", { class: "detail" }, h("span", { class: "quiet" }, `${k} `), plain(v)))];
}

function auditView(ctx) {
	const { state, load, note } = ctx;
	const rows = slot(), chains = slot();
	const choose = (name, label, options) => h("label", {}, label, h("select", { onchange: (e) => { state.filter[name] = e.target.value; load("audit").catch((t) => note("bad", t.title, t.advice)); } }, h("option", { value: "" }, "all"), options.map((o) => h("option", { value: o, selected: state.filter[name] === o }, o))));
	return {
		title: "Audit", intro: "This endpoint’s own records, newest first, each chained to the one before. Every process keeps such a chain.",
		element: h("div", { class: "stack" }, card("Chains", {}, chains, h("p", { class: "help" }, "All of them are checked whole, offline, by ", h("code", {}, "hermesctl audit verify"), ".")),
			card("Records", { aside: h("div", { class: "filters" }, choose("action", "Action", ["features", "users", "runtime", "bot_token", "bot_token_clear", "control_secret", "access"]), choose("status", "Outcome", ["ok", "refused", "failed", "intent"])) }, rows)),
		update(s) {
			draw(chains, [s.chain?.chains, s.chain?.checkpoint], ([c, point]) => c ? table("Audit chains", ["Process", "Records", "Head", "State"], Object.entries(c).map(([name, x]) => [serviceText[name] || "Admin", String(x.seq ?? "—"), digest(x.hash), h("span", {}, chip(x.state, x.state === "reported" ? "reported by itself" : undefined), x.error ? ` ${x.error}` : "", point?.heads?.[name] && x.seq < point.heads[name].seq ? h("strong", {}, " shorter than the approver’s checkpoint") : "")])) : empty("Asking…"));
			draw(rows, s.audit, (a) => !a ? empty("Asking…") : a.length ? table("Audit records", ["No.", "When", "Action", "Outcome", "Detail"], a.map((r) => [String(r.seq), when(r.ts), r.action.replaceAll("_", " "), chip(r.status), detailText(r.detail)])) : empty("No record matches."));
		},
	};
}

function view(label, make) {
	return Object.assign(make, { label });
}

export const views = {
	overview: view("Overview", overviewView),
	operations: view("Operations", operationsView),
	runtime: view("Service", runtimeView),
	policy: view("Policy & access", policyView),
	hosts: view("SSH profiles", hostsView),
	audit: view("Audit", auditView),
};
