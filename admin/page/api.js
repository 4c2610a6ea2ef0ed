// The admin endpoint: requests with the key, the stream of events, and what is wrong when it does not answer.

export class Trouble extends Error {
	constructor(kind, title, advice, status = 0) {
		super(title);
		Object.assign(this, { kind, title, advice, status });
	}
}

// A page asks first whether it may reach this machine at all; browsers have named that permission differently.
async function permission() {
	for (const name of ["loopback-network", "local-network", "local-network-access"]) {
		try {
			const answer = await navigator.permissions.query({ name });
			if (answer.state !== "granted") return answer.state;
		} catch { /* this browser has no such permission */ }
	}
	return "granted";
}

export class Endpoint {
	constructor(base, key) {
		this.base = base.replace(/\/+$/, "");
		this.key = key;
	}

	headers(more) {
		return { "X-Execution-Admin-Key": this.key, ...more };
	}

	async request(method, path, body, signal) {
		let response;
		try {
			response = await fetch(this.base + path, {
				method, signal, mode: "cors", cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
				headers: this.headers(body === undefined ? {} : { "Content-Type": "application/json" }),
				body: body === undefined ? undefined : JSON.stringify(body),
			});
		} catch (error) {
			if (error.name === "AbortError") throw error;
			throw await this.diagnose();
		}
		let answer = null;
		try {
			answer = await response.json();
		} catch { /* told by its status */ }
		if (response.ok) return answer;
		throw this.refusal(response.status, answer, response.headers.get("Retry-After"));
	}

	refusal(status, answer, retry) {
		const text = answer?.error || `The endpoint answered ${status}.`;
		if (status === 401) return new Trouble("key", "The admin key is wrong", "Show the right one on the host with ./manage.sh show-execution-admin-key and enter it again. It may have been rotated.", status);
		if (status === 429) return new Trouble("locked", "Too many wrong keys", `Wait ${retry || "a few"} seconds, then try again.`, status);
		if (status === 403) return new Trouble("origin", "This page’s origin is not allowed", this.originAdvice(), status);
		if (status === 503) return new Trouble("service", "A process behind the endpoint can’t do this now", text, status);
		return new Trouble("refused", "Refused", text, status);
	}

	originAdvice() {
		return `On the host run ./manage.sh configure-execution-admin-browser ${location.origin} — or open ${this.base}/ itself.`;
	}

	// A browser says only “failed”. What it means is found out by asking in ways that can still succeed.
	async diagnose() {
		const may = await permission();
		if (may === "denied")
			return new Trouble("permission", "The browser does not let this page reach your machine", "Click the icon left of the address, open the site settings, and set “Apps on device” / “Local network access” to Allow. Then try again.");
		try {
			// Answered without looking at the origin, and unreadable for us: that it arrives is what counts.
			await fetch(this.base + "/health", { mode: "no-cors", cache: "no-store", credentials: "omit" });
			return new Trouble("origin", "The endpoint is there, but this page’s origin is not allowed", this.originAdvice());
		} catch {
			return new Trouble("unreachable", "Nothing answers at this address",
				(may === "prompt" ? "If the browser asks whether this page may reach devices on your network, allow it. " : "") +
				"Is the service running? On the host: ./manage.sh status, and ./manage.sh up to start it. Over SSH, forward the port: ssh -L 8752:127.0.0.1:8752 HOST");
		}
	}

	// Server-sent events with our header, which EventSource can’t send. Returns when the stream ends.
	async events(path, onEvent, signal) {
		const response = await fetch(this.base + path, { mode: "cors", cache: "no-store", credentials: "omit", headers: this.headers({ Accept: "text/event-stream" }), signal });
		if (!response.ok) throw this.refusal(response.status, await response.json().catch(() => null));
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		let text = "";
		for (;;) {
			const { value, done } = await reader.read();
			if (done) return;
			text += value;
			const blocks = text.split("\n\n");
			text = blocks.pop();
			for (const block of blocks) {
				const name = /^event: (.*)$/m.exec(block)?.[1];
				const data = /^data: (.*)$/m.exec(block)?.[1];
				if (name && data) onEvent(name, JSON.parse(data));
			}
		}
	}
}
