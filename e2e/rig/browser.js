// Chromium, and what is watched in every page: errors, violations of the policy, requests.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const executablePath = process.env.CHROMIUM_BIN ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find((f) => existsSync(f)) ?? "";

export const desktop = { width: 1280, height: 800 };
export const phone = { width: 390, height: 844 };

/** The checks of accessibility, as a script that a page evaluates. */
export const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Starts Chromium; close it after the tests. Playwright has it keep no page that was left; keepsPages has it do so, as people's do. */
export function launch({ keepsPages = false } = {}) {
  return chromium.launch({
    executablePath,
    ignoreDefaultArgs: keepsPages ? ["--disable-back-forward-cache"] : [],
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** A page and what went on in it. */
export class Visit {
  page;
  /** URLs of all requests, in their order; Playwright gives them with their fragment, which is not sent. */
  requests = [];
  /** Those that have neither been answered in full nor failed yet: live streams, for one. */
  pending = new Set();
  /** Errors that scripts did not catch, and violations of the policy. */
  troubles = [];
  /** What the browser's console was told as an error: failed loads among it. */
  errors = [];

  /** Opens a page in a context of its own, which ends with the test. Nothing is loaded yet. */
  static async begin(t, browser, { size = desktop, ...options } = {}) {
    const context = await browser.newContext({ viewport: size, ...options });
    t.after(() => context.close());
    return Visit.#of(context);
  }

  /** Opens another tab beside this one. */
  async tab() {
    return Visit.#of(this.page.context());
  }

  static async #of(context) {
    const v = new Visit();
    v.page = await context.newPage();
    v.page.on("request", (r) => {
      v.requests.push(r.url());
      v.pending.add(r);
    });
    for (const ended of ["requestfinished", "requestfailed"]) v.page.on(ended, (r) => v.pending.delete(r));
    v.page.on("pageerror", (err) => v.troubles.push(err.stack ?? err.message));
    v.page.on("console", (m) => {
      if (m.type() === "error") v.errors.push(m.text());
      if (m.text().includes("Content Security Policy") || m.text().includes("violation:")) v.troubles.push(m.text());
    });
    await v.page.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (e) => console.error(`violation: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
    });
    return v;
  }

  /** What the state line says. */
  get state() {
    return this.page.locator("#state");
  }

  /** Opens an address and waits until the page has all that is there. */
  async open(url) {
    await this.page.goto(url);
    await this.live();
  }

  /** Waits until the page follows the session and has all that is there. */
  async live() {
    try {
      await this.page.locator("#line[data-state=live]").waitFor({ timeout: 60_000 });
    } catch (err) {
      const pending = [...this.pending].map((r) => `${r.method()} ${new URL(r.url()).pathname}`);
      const said = await this.state.textContent({ timeout: 1000 }).catch((why) => why.message);
      assert.fail(`${err.message}\nthe page says: ${said}\nnot answered: ${pending.join(", ")}\nits console: ${[...this.errors, ...this.troubles].join("\n")}`);
    }
  }

  /** Waits until the page has summed up what is there, which it does with its next frame. */
  async framed() {
    await this.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  }

  /** Has the page, once opened, load itself anew at once whenever it has to, and not 15 s after it last did. */
  async hurries() {
    await this.page.addInitScript(() => sessionStorage.removeItem("mooring-reload"));
  }

  /** Waits until there is text somewhere in the session. */
  async shows(text) {
    await this.page.locator("#log").getByText(text).first().waitFor({ state: "attached", timeout: 60_000 });
  }

  /** The texts of all parts in the page's order: [key, text with single blanks] each. */
  async texts() {
    return this.page.evaluate(() =>
      [...document.querySelectorAll("#log [data-key^='part/']")].map((el) => [el.dataset.key, (el.querySelector(".md") ?? el).textContent.replace(/\s+/g, " ").trim()]),
    );
  }

  /** Fails if a script failed, the policy was violated or another host was asked. */
  clean() {
    assert.deepEqual(this.troubles, [], "errors and violations in the page");
    const { host } = new URL(this.page.url());
    const abroad = this.requests.filter((url) => !/^(data|blob):/.test(url) && new URL(url).host !== host);
    assert.deepEqual(abroad, [], "requests to other hosts");
  }
}
