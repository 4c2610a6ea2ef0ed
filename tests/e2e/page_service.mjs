// An upgrade of the real service, followed on the page while it happens (test_page.py, Upgrade).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
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
const ctl = (...args) => new Promise((resolve) => {
	const child = spawn(env.ctl, ["--state", env.state, "--json", ...args], { stdio: ["ignore", "pipe", "inherit"] });
	let out = "";
	child.stdout.on("data", (d) => (out += d));
	child.on("close", (code) => resolve({ code, out }));
});

async function shot(page, name) {
	const size = page.viewportSize();
	const height = await page.evaluate(() => document.documentElement.scrollHeight);
	await page.setViewportSize({ width: size.width, height: Math.max(size.height, Math.min(height, 4000)) });
	await page.screenshot({ path: join(env.shots, `${name}.png`) });
	await page.setViewportSize(size);
}

const browser = await chromium.launchPersistentContext(profile, { executablePath: env.chromium, args: flags, viewport: { width: 1280, height: 900 } });
try {
	browser.setDefaultTimeout(60000);
	const page = await browser.newPage();
	await page.goto(`http://127.0.0.1:${env.port}/`);
	await page.getByLabel("Admin key").fill(readFileSync(join(env.state, "admin/admin-key"), "utf8").trim());
	await page.getByRole("button", { name: "Connect", exact: true }).click();
	await page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name: "Service" }).click();
	const current = page.locator(".release", { hasText: "Current" });
	await current.getByText(env.before.slice(0, 12)).waitFor();
	await current.getByText("healthy").waitFor();

	// Everything the page says about progress, as a person would see it go by.
	await page.evaluate(() => {
		window.seen = new Set();
		new MutationObserver(() => {
			for (const el of document.querySelectorAll(".progress-text > span:first-child, .operation .chip")) window.seen.add(el.textContent);
		}).observe(document.querySelector("#view"), { subtree: true, childList: true, characterData: true });
	});
	const upgrade = ctl("runtime", "upgrade", "--image", env.image, "--approve");
	await page.locator(".operation.executing progress").first().waitFor();
	await shot(page, "service-upgrading");
	assert.equal((await upgrade).code, 0);
	await current.getByText(env.after.slice(0, 12)).waitFor();
	await current.getByText("healthy").waitFor();
	const seen = await page.evaluate(() => [...window.seen]);
	assert.ok(seen.length >= 3, `phases seen: ${seen.join(", ")}`);
	await page.getByText("to go back to", { exact: true }).waitFor();
	assert.equal((await ctl("runtime", "backup", "--approve")).code, 0);
	await page.getByRole("button", { name: "Refresh" }).click();
	await page.getByRole("table", { name: "Backups" }).waitFor();
	await shot(page, "service-installed");
	await page.evaluate(axe);
	const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
	assert.deepEqual(found.violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.id), []);
	await page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name: "Operations" }).click();
	await page.locator(".operation.succeeded", { hasText: "upgrade" }).waitFor();
	await shot(page, "operations-installed");
	await page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name: "Overview" }).click();
	await page.getByText("All is well").waitFor();
	await shot(page, "overview-installed");
	console.log(`phases: ${seen.join(", ")}`);
} finally {
	await browser.close();
	rmSync(profile, { recursive: true, force: true });
}
