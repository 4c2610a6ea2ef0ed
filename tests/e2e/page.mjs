// Drives the Operations Center page in a real Chromium. Told by the environment what to talk to (test_page.py); each task
// is one function; "ok NAME" or "not ok NAME: why" a line. Screenshots go to PAGE_SHOTS.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const env = JSON.parse(process.env.PAGE_TEST);
const require = createRequire(join(env.modules, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync"];
const profile = mkdtempSync(join(tmpdir(), "hb-page-"));
const home = `http://127.0.0.1:${env.port}`;
const results = [];

const ctl = (...args) => {
	try {
		return JSON.parse(execFileSync(env.ctl, ["--state", env.state, "--json", ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }) || "{}");
	} catch (error) {
		return JSON.parse(error.stdout || "{}");
	}
};
const key = () => readFileSync(join(env.state, "admin/admin-key"), "utf8").trim();

function prepare(request, session = "page") {
	const secret = readFileSync(join(env.state, "broker/control-secret"), "utf8").trim();
	const body = JSON.stringify({ feature: "docker", request, user_id: "0", session });
	const out = execFileSync("curl", ["-s", "--unix-socket", "run/broker/sock", "-H", `X-Broker-Secret: ${secret}`, "-H", "Content-Type: application/json", "-d", body, "http://broker/prepare"], { cwd: env.state, encoding: "utf8" });
	return JSON.parse(out);
}

async function task(name, run) {
	try {
		await run();
		results.push(name);
		console.log(`ok ${name}`);
	} catch (error) {
		console.log(`not ok ${name}: ${String(error.stack || error).replaceAll("\n", "\\n")}`);
		process.exitCode = 1;
	}
}

async function open(context, url = home) {
	const page = await context.newPage();
	page.problems = [];
	page.on("console", (m) => m.type() === "error" && page.problems.push(m.text()));
	page.on("pageerror", (e) => page.problems.push(String(e)));
	await page.goto(url);
	return page;
}

async function connect(page, withKey = key(), endpoint = home) {
	await page.getByLabel("Admin endpoint").fill(endpoint);
	await page.getByLabel("Admin key").fill(withKey);
	await page.getByRole("button", { name: "Connect", exact: true }).click();
}

const visit = async (page, name) => {
	await page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name }).click();
	await page.getByRole("heading", { level: 1, name }).waitFor();
};
// The whole page in one window, so that what sticks to its edges stands where it belongs.
async function shot(page, name) {
	const size = page.viewportSize();
	const height = await page.evaluate(() => document.documentElement.scrollHeight);
	await page.setViewportSize({ width: size.width, height: Math.max(size.height, Math.min(height, 4000)) });
	await page.screenshot({ path: join(env.shots, `${name}.png`) });
	await page.setViewportSize(size);
}
const logged = (page, text) => page.locator("#journal-list li", { hasText: text }).first().waitFor({ state: "attached" });

async function accessible(page, where) {
	await page.evaluate(axe);
	const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
	const serious = found.violations.filter((v) => ["serious", "critical"].includes(v.impact));
	assert.deepEqual(serious.map((v) => `${where}: ${v.id} ${v.nodes.map((n) => n.target).join(" ")}`), []);
}

const options = { executablePath: env.chromium, args: flags, ignoreDefaultArgs: ["--enable-automation"], viewport: { width: 1280, height: 900 } };
const browser = await chromium.launchPersistentContext(profile, options);
browser.setDefaultTimeout(20000);

await task("connect", async () => {
	const page = await open(browser);
	await page.waitForFunction(() => document.querySelector("#endpoint").value === location.origin);
	assert.equal(await page.getByLabel("Admin endpoint").inputValue(), home);
	await shot(page, "connect");
	await accessible(page, "connect");
	await connect(page, "not-the-key");
	await page.locator(".problem[data-kind=key]").waitFor();
	assert.match(await page.locator("#connect-problem").innerText(), /show-execution-admin-key/);
	await shot(page, "wrong-key");
	await connect(page);
	await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
	await page.getByText("live", { exact: true }).waitFor();
	// The key is nowhere that outlives the page.
	const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML]));
	assert.ok(!stored.includes(key()));
	await page.reload();
	await page.getByRole("button", { name: "Connect", exact: true }).waitFor();
	assert.equal(await page.getByLabel("Admin key").inputValue(), "");
	assert.deepEqual(page.problems.filter((p) => !/401/.test(p)), []);
	await page.close();
});

await task("unreachable", async () => {
	const page = await open(browser);
	await connect(page, "x", `http://127.0.0.1:${env.closed}`);
	await page.locator(".problem").waitFor();
	// The page's own policy allows only the endpoint that served it; from there another port is simply not reachable.
	assert.equal(await page.locator(".problem").getAttribute("data-kind"), "unreachable");
	assert.match(await page.locator("#connect-problem").innerText(), /manage\.sh up/);
	await page.close();
});

await task("origin_not_allowed", async () => {
	const page = await open(browser, env.foreign);
	await connect(page);
	await page.locator(".problem[data-kind=origin]").waitFor();
	assert.match(await page.locator("#connect-problem").innerText(), new RegExp(`configure-execution-admin-browser ${env.foreign.replace(/\/$/, "")}`));
	await shot(page, "origin-not-allowed");
	await page.close();
});

await task("permission_denied", async () => {
	const page = await browser.newPage();
	await page.addInitScript(() => {
		navigator.permissions.query = async ({ name }) => (/network/.test(name) ? { state: "denied" } : { state: "granted" });
	});
	await page.route("**/admin/**", (route) => route.abort());
	await page.goto(env.allowed);
	await connect(page);
	await page.locator(".problem[data-kind=permission]").waitFor();
	assert.match(await page.locator("#connect-problem").innerText(), /site settings/);
	await page.close();
});

await task("served_from_another_allowed_origin", async () => {
	const page = await open(browser, env.allowed);
	await connect(page);
	await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
	await page.getByText("live", { exact: true }).waitFor();
	await page.close();
});

const page = await open(browser);
await connect(page);
await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();

await task("overview", async () => {
	for (const name of ["Front door", "Approver", "Installer", "Fetcher", "Docker executor", "SSH executor"]) await page.getByText(name, { exact: true }).first().waitFor();
	assert.equal(await page.getByText("out of reach").count(), 4);
	await shot(page, "overview");
	await accessible(page, "overview");
});

await task("features", async () => {
	await visit(page, "Policy & access");
	const before = ctl("policy", "show").live.generation;
	await page.getByRole("switch", { name: "Docker" }).click();
	await logged(page, "Docker turned on");
	assert.deepEqual(ctl("policy", "show").live.features, ["runtime", "docker"]);
	assert.equal(ctl("policy", "show").live.generation, before + 1);
	await page.locator(".history").getByText(`Generation ${before + 1}`).waitFor();
	await page.getByText("features added: docker").waitFor();
});

await task("approvers", async () => {
	await page.getByRole("switch", { name: "222" }).click();
	await logged(page, "222 removed from the approvers");
	assert.ok(!ctl("policy", "show").live.users.includes("222"));
	await page.getByRole("switch", { name: "222" }).click();
	await logged(page, "222 made an approver");
	assert.ok(ctl("policy", "show").live.users.includes("222"));
});

await task("root_changes_show_by_themselves", async () => {
	ctl("policy", "set", "--quorum", "docker=2");
	await page.getByText("quorum of docker: 1 → 2").waitFor();
	ctl("policy", "set", "--quorum", "docker=1");
	await page.getByText("quorum of docker: 2 → 1").waitFor();
});

await task("bot_token_is_replaced_and_removed", async () => {
	const replace = page.getByRole("button", { name: "Replace bot token" });
	assert.ok(await replace.isDisabled());
	await page.getByLabel("New token from @BotFather").fill("********");
	await replace.click();
	await page.getByRole("dialog").getByRole("button", { name: "Replace the bot token" }).click();
	await logged(page, "Bot token was not replaced");
	await page.getByLabel("New token from @BotFather").fill(env.token);
	await replace.click();
	await page.getByText("can’t be read back").waitFor();
	await shot(page, "bot-token-dialog");
	await page.getByRole("dialog").getByRole("button", { name: "Replace the bot token" }).click();
	await page.getByText("A token is set.").waitFor();
	assert.equal(await page.getByLabel("New token from @BotFather").inputValue(), "");
	assert.ok(!(await page.content()).includes(env.token));
	await page.getByRole("button", { name: "Remove token…" }).click();
	await page.getByRole("dialog").getByRole("button", { name: "Leave it as it is" }).click();
	await page.getByText("A token is set.").waitFor();
	await page.getByRole("button", { name: "Remove token…" }).click();
	await page.getByRole("dialog").getByRole("button", { name: "Remove the bot token" }).click();
	await page.getByText("No token is set.").waitFor();
});

await task("control_secret_is_rotated", async () => {
	const file = join(env.state, "broker/control-secret");
	const before = readFileSync(file, "utf8");
	await page.getByRole("button", { name: "Make a new control secret…" }).click();
	await page.getByRole("dialog").getByText("stops working at once").waitFor();
	await page.getByRole("dialog").getByRole("button", { name: "Make a new control secret" }).click();
	await logged(page, "Control secret rotated");
	assert.notEqual(readFileSync(file, "utf8"), before);
	await shot(page, "policy");
	await accessible(page, "policy");
});

await task("an_operation_is_followed_live", async () => {
	await visit(page, "Operations");
	const op = prepare({ action: "list", all: true });
	assert.equal(op.status, "prepared", JSON.stringify(op));
	const item = page.locator(".operation", { hasText: op.digest.slice(0, 12) });
	await item.getByText("awaiting approval").waitFor();
	await page.getByRole("link", { name: /Operations 1 waiting/ }).waitFor();
	await shot(page, "operations-waiting");
	await accessible(page, "operations");
	ctl("deny", op.operation_id);
	await item.getByText("denied").waitFor();
	const second = prepare({ action: "list", all: false });
	await page.locator(".operation", { hasText: second.digest.slice(0, 12) }).getByText("awaiting approval").waitFor();
	// A policy change made here kills what waits, in sight.
	await visit(page, "Policy & access");
	await page.getByRole("switch", { name: "Docker" }).click();
	await logged(page, "Docker turned off");
	await visit(page, "Operations");
	await page.locator(".operation", { hasText: second.digest.slice(0, 12) }).getByText("revoked").waitFor();
	await shot(page, "operations");
});

await task("service", async () => {
	await visit(page, "Service");
	if (env.installed) {
		await page.getByText("Current", { exact: true }).waitFor();
		await page.getByText("healthy").first().waitFor();
	} else await page.getByText("Nothing is installed.").first().waitFor();
	await shot(page, "service");
	await accessible(page, "service");
});

await task("ssh_profiles", async () => {
	await visit(page, "SSH profiles");
	await page.getByText(/There is no profile yet|Signs in with/).first().waitFor();
	await shot(page, "ssh-profiles");
	await accessible(page, "ssh");
});

await task("audit", async () => {
	await visit(page, "Audit");
	await page.getByText("verified").first().waitFor();
	await page.getByLabel("Outcome").selectOption("refused");
	await page.getByRole("cell", { name: "bot token" }).first().waitFor();
	assert.equal(await page.locator("[aria-label='Audit records'] tbody tr", { hasText: "ok" }).filter({ hasText: "done" }).count(), 0);
	await page.getByLabel("Outcome").selectOption("");
	await page.getByRole("cell", { name: "features" }).first().waitFor();
	await shot(page, "audit");
	await accessible(page, "audit");
});

await task("the_session_log_stays", async () => {
	await page.locator(".journal summary").click();
	await page.locator("#journal-list li", { hasText: "Connected to" }).waitFor();
	await page.locator("#journal-list li", { hasText: "Control secret rotated" }).waitFor();
	await shot(page, "session-log");
	await accessible(page, "log");
	await page.locator(".journal summary").click();
});

await task("keyboard_alone", async () => {
	await visit(page, "Overview");
	await page.evaluate(() => {
		document.body.tabIndex = -1;
		document.body.focus();
	});
	await page.keyboard.press("Tab");
	assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
	const seen = new Set();
	for (let i = 0; i < 30; i++) {
		await page.keyboard.press("Tab");
		seen.add(await page.evaluate(() => document.activeElement.textContent.trim().slice(0, 20)));
	}
	for (const name of ["Refresh", "Disconnect", "Operations", "Policy & access"]) assert.ok([...seen].some((t) => t.startsWith(name)), `${name} is reached by Tab`);
	await page.getByRole("link", { name: "Policy & access" }).focus();
	await page.keyboard.press("Enter");
	await page.waitForFunction(() => document.activeElement.id === "view-title");
	await page.getByRole("switch", { name: "SSH" }).focus();
	await page.keyboard.press("Space");
	await logged(page, "SSH turned on");
	await page.waitForFunction(() => document.activeElement.dataset.key === "ssh");
	await page.keyboard.press("Space");
	await logged(page, "SSH turned off");
	await page.getByRole("button", { name: "Make a new control secret…" }).focus();
	await page.keyboard.press("Enter");
	assert.equal(await page.evaluate(() => document.activeElement.textContent), "Leave it as it is");
	await page.keyboard.press("Escape");
	await page.waitForFunction(() => !document.querySelector("dialog").open);
});

await task("light_dark_phone_desktop", async () => {
	for (const scheme of ["light", "dark"])
		for (const [size, width] of [["phone", 375], ["tablet", 820], ["desktop", 1440]]) {
			await page.emulateMedia({ colorScheme: scheme });
			await page.setViewportSize({ width, height: 900 });
			for (const name of ["Overview", "Operations", "Service", "Policy & access", "SSH profiles", "Audit"]) {
				await visit(page, name);
				const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
				assert.ok(over <= 0, `${name} at ${width}px is ${over}px too wide`);
				if (size !== "tablet") await shot(page, `${name.toLowerCase().replace(/[^a-z]+/g, "-")}-${size}-${scheme}`);
				if (size !== "tablet") await accessible(page, `${name} ${size} ${scheme}`);
			}
		}
	await page.emulateMedia({ colorScheme: "light" });
	await page.setViewportSize({ width: 1280, height: 900 });
});

await task("a_restart_of_the_endpoint_is_survived", async () => {
	ctl("admin", "browser", env.foreign.replace(/\/$/, "")); // restarts hermes-admin
	await page.getByText("live", { exact: true }).waitFor();
	ctl("policy", "set", "--quorum", "ssh=2");
	await visit(page, "Policy & access");
	await page.getByText("quorum of ssh: 1 → 2").waitFor();
	ctl("policy", "set", "--quorum", "ssh=1");
});

await task("a_rotated_key_ends_the_session", async () => {
	ctl("admin", "key", "rotate");
	await page.getByRole("button", { name: "Refresh" }).click();
	await page.locator(".problem[data-kind=key]").waitFor();
	assert.equal(await page.locator("#app").isVisible(), false);
});

await task("nothing_foreign_was_asked_for", async () => {
	assert.deepEqual(page.problems.filter((p) => !/40[13]|422|ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|Failed to fetch|net::/.test(p)), []);
});

await task("transfer_and_first_paint", async () => {
	const fresh = await open(browser);
	const numbers = await fresh.evaluate(() => ({
		bytes: performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource")).filter((e) => /\/$|\.(js|css|svg|html)$/.test(new URL(e.name).pathname)).reduce((n, e) => n + e.transferSize, 0),
		paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
		hosts: [...new Set(performance.getEntriesByType("resource").map((e) => new URL(e.name).host))],
	}));
	assert.ok(numbers.bytes > 0 && numbers.bytes < 100 * 1024, `${numbers.bytes} bytes`);
	assert.deepEqual(numbers.hosts, [`127.0.0.1:${env.port}`]);
	writeFileSync(join(env.shots, "numbers.json"), JSON.stringify(numbers));
	await fresh.close();
});

await browser.close();
rmSync(profile, { recursive: true, force: true });
console.log(`1..${results.length}`);
