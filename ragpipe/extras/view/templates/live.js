// live.js: asks the server each second while the page is visible. Polling: eight tabs work, event streams did not.

const ASK_MS = 1000;

class Live {
  /** `onProgress(progress)`, `onIndex(index)`: what the server says. `say(text)`: a sentence for the reader, or null. */
  constructor(revision, { onProgress, onIndex, say }) {
    Object.assign(this, { revision, onProgress, onIndex, say, lost: null, timer: null });
    document.addEventListener("visibilitychange", () => this.later(0));
    this.later(0);
  }

  later(ms) {
    clearTimeout(this.timer);
    if (document.visibilityState === "visible") this.timer = setTimeout(() => this.ask(), ms);
  }

  async ask() {
    try {
      const progress = await this.get("progress");
      this.onProgress(progress);
      if (progress.revision !== this.revision) {
        const index = await this.get("index.json");
        this.revision = index.revision;
        this.onIndex(index);
        this.onProgress(progress);
      }
      this.lost = null;
      this.say(null);
    } catch (error) {
      this.lost ??= new Date();
      this.say(error.status === 401
        ? "The server was started again and has a new token: open the address that it printed."
        : `No connection to the server since ${this.lost.toLocaleTimeString("en-GB")}; it is asked each second. Start it again with: python -m ragpipe task=view view.port=${location.port}`);
    }
    this.later(ASK_MS);
  }

  async get(path) {
    const reply = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!reply.ok) throw Object.assign(new Error(path), { status: reply.status });
    return reply.json();
  }
}
