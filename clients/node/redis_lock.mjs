#!/usr/bin/env node
// A lock on one Redis server, without a library: SET NX PX, and scripts that delete and extend only the caller's key.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

import * as lockquake from "./lockquake.mjs";

const own = (then) => `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call(${then}) else return 0 end`;
const REPLY = /^(?:[+:-](.*)|\$-1|\$\d+\r\n(.*))\r\n$/s;

class RedisLock extends lockquake.Lock {
  async acquire(name, timeout) {
    const key = `lockquake:${name}`, id = randomUUID(), until = performance.now() + timeout;
    for (this.givenUp = false; ; await pause(20)) {
      const sent = lockquake.now();
      if (await this.ask("SET", key, id, "NX", "PX", this.ttl())) return this.grant(id, sent, { handle: key });
      if (this.givenUp || performance.now() + 20 > until) throw new lockquake.Contended("another user has the lock");
    }
  }
  cancel() { this.givenUp = true; }
  ttl() { return String(this.access.ttlNs / 1_000_000n); }
  release({ id, handle }) { return this.mine("EVAL", own('"del", KEYS[1]'), "1", handle, id); }
  releaseUnheld(name, last) { return this.release(last ?? { id: randomUUID(), handle: `lockquake:${name}` }); }
  async renew({ id, handle }) {
    const sent = lockquake.now();
    await this.mine("EVAL", own('"pexpire", KEYS[1], ARGV[2]'), "1", handle, id, this.ttl());
    return lockquake.valid(sent, this.access.ttlNs);
  }
  async check({ id, handle }) { if (await this.ask("GET", handle) !== id) throw new lockquake.NotHeld(); }
  async mine(...words) { if (await this.ask(...words) !== "1") throw new lockquake.NotHeld(); }

  /** Sends a request and returns its reply. A failure ends the connection: a late reply must not be mistaken. */
  async ask(...words) {
    if (!this.socket || this.socket.destroyed) await this.connect();
    return new Promise((resolve, reject) => {
      let text = "";
      this.socket.removeAllListeners("data").on("data", (part) => {
        const found = REPLY.exec(text += part);
        if (found && text[0] === "-") reject(new lockquake.Refused(found[1]));
        else if (found) resolve(found[1] ?? found[2]);
      });
      this.failed = reject;
      this.socket.setTimeout(this.access.timeout);
      this.socket.write(`*${words.length}\r\n${words.map((w) => `$${Buffer.byteLength(w)}\r\n${w}\r\n`).join("")}`);
    }).finally(() => this.socket.setTimeout(0));
  }
  async connect() {
    const [address] = this.access.addresses(), { user, password, timeout } = this.access;
    this.socket = connect({ ...address, noDelay: true }).setEncoding("utf8").setTimeout(timeout);
    this.socket.on("timeout", () => this.socket.destroy(new Error("timeout: the server did not answer")));
    this.socket.on("error", (err) => this.failed?.(err)).on("close", () => this.failed?.(new Error("socket closed")));
    await once(this.socket, "connect").catch((err) => { throw new lockquake.NotSent(err.message); });
    if (password) await this.ask("AUTH", ...(user ? [user] : []), password);
  }
  close() { this.socket?.destroy(); }
}

lockquake.main(RedisLock, "SET NX PX in JavaScript");
