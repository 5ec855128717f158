// The client side of lockquake's control stream (docs/protocol.md): frames, clocks, workloads, events, points.
//
// A client is a class with acquire and release, and a call of main:
//
//     import * as lockquake from "./lockquake.mjs";
//
//     class MyLock extends lockquake.Lock {
//       async acquire(name, timeout) { ... }    // returns this.grant(...), or throws Contended
//       async release(grant) { ... }            // throws NotHeld if the service no longer had it
//     }
//
//     lockquake.main(MyLock, "my lock", { mylib: "1.2.3" });
//
// Needs only Node 18 or later. Times are BigInts, in ns; durations of the interface are numbers, in ms.
// docs/clients.md has more.
import { Console } from "node:console";
import { createHash } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { connect } from "node:net";
import { basename } from "node:path";
import { setImmediate, setTimeout as pause } from "node:timers/promises";

const VERSION = 1;
export const ENDLESS = "endless", UNKNOWN = "unknown"; // values of valid that are not a time
export const BY_RENEW = "by renew"; // in a grant: call renew at once for the validity
const POINTS = ["before-lock", "lock-done", "before-unlock", "unlock-done"]; // around acquire and release of every lock
const BEAT = 10; // ms: how often a process checks that it runs
const STALL = 20_000_000n; // ns: the shortest stall that is reported
const ROOM = 128 << 10; // number of events that may wait to be written
const CROWDED = 4 << 10; // above this number, users without a lock pause

/** CLOCK_MONOTONIC in ns, the time base of a run. */
export const now = () => process.hrtime.bigint();

/** The operation certainly failed. After any other error of a lock the outcome is unknown. */
export class Certain extends Error {
  static code = "other";
}

/** The lock is taken, or the wait for it was given up. Certainly nothing was granted. */
export class Contended extends Certain {
  static code = "contended";
}

/** The service certainly no longer has the grant. */
export class NotHeld extends Certain {
  static code = "not-held";
}

/** The grant was lost while it was held. */
export class Lost extends Certain {
  static code = "lost";
}

/** The request certainly never reached the service. */
export class NotSent extends Certain {
  static code = "connection";
}

/** The service refused the request. */
export class Refused extends Certain {
  static code = "unavailable";
}

/** The resource refused the grant's token. */
class Fenced extends Certain {
  static code = "fenced";
}

/** The wait was cancelled, and it is unknown whether the lock was granted. */
export class Cancelled extends Error {}

/** The check before a write found the grant lost or expired, or nothing is left to do. It does not count as error. */
class Stopped extends Certain {}

/**
 * A lock that was granted. id identifies the grant at the service, sent is when the granted request was sent, valid the
 * end of the promised validity (a time, ENDLESS, UNKNOWN or BY_RENEW), token the fencing token or 0. handle is for the
 * author's own use.
 */
export class Grant {
  constructor(id, sent, valid, { token = 0, handle } = {}) {
    Object.assign(this, { id, sent, valid, token, handle });
  }
}

/**
 * One user's lock, with a connection of its own. Its methods are called one at a time. Only cancel and close may be
 * called during another call. Methods may be async. Optional ones that an author may add:
 *
 * - reenter(grant, timeout) takes a lock that this object holds once more, by the library's own call, and returns the
 *   grant of that. Each grant is released, the latest first; the lock is free after the last.
 * - renew(grant) extends the grant and returns the new end of the validity. NotHeld and Lost: the grant is gone.
 * - check(grant) throws NotHeld if the service says that the grant is gone.
 * - releaseUnheld(name, last) releases a lock that this object does not hold, by the library's own call. last is the
 *   latest grant of the lock that the object released, or undefined. NotHeld: the library refused.
 * - onLost(grant, tell) has tell() called when the library reports that the grant is gone.
 * - onRenewed(grant, tell) has tell(valid) called after each renewal that the library makes by itself. valid is the new
 *   end of the validity, counted from when the renewal was sent, or UNKNOWN if the library does not say.
 * - cancel() ends the acquire that is under way. It throws Cancelled, or Contended if certainly nothing was granted.
 */
export class Lock {
  /** Whether grants last as long as the process lives without calls of renew, as with a session that is kept alive. */
  static keeps = false;
  /** Whether as many users may hold the lock at once as access.permits says. */
  static permits = false;
  /** Whether the lock's key differs from the one that lockquake asks for. */
  static elsewhere = false;
  /** { ttls, plus }: the bound from the last call of a user that hangs to the next grant, if the library renews by itself. plus is in ms. */
  static hung = undefined;
  /** Further points, in the order in which the lock reaches them. The first one in release begins with "before-". */
  static points = [];

  constructor(access) {
    this.access = access;
  }

  /** Reach the service. */
  connect() {}

  /** Take the lock within timeout ms and return a grant. */
  acquire(name, timeout) {
    throw new Error(`no acquire of ${name} within ${timeout} ms is written`);
  }

  /** Give the lock back. */
  release(grant) {
    throw new Error(`no release of ${grant.id} is written`);
  }

  /** Free the lock's resources. A call under way then ends, with an error unless it succeeded. */
  close() {}

  /** Return a grant that is valid for the TTL of the run. */
  grant(id, sent, more) {
    return new Grant(id, sent, valid(sent, this.access.ttlNs), more);
  }

  /** Announce that the user has reached a point. Await it. It costs next to nothing unless the point is armed. */
  at(point) {
    return owners.get(this)?.at(point);
  }
}

const owners = new WeakMap(); // the user of each lock

/** Return the end of a TTL that was requested at sent, less the drift that two clocks may have. */
export const valid = (sent, ttlNs) => BigInt(sent) + ttlNs - ttlNs / 100n - 2_000_000n;

/** How to reach the service. */
class Access {
  constructor(frame, ttl) {
    this.frame = frame;
    this.ttlNs = BigInt(frame.ttl_ns || ttl || 0);
    this.ttl = Number(this.ttlNs) / 1e6; // ms
    this.run = frame.run ?? "";
    this.client = frame.client ?? 0;
    this.permits = frame.permits ?? 1; // how many users may hold one lock at once
    this.user = frame.user ?? "";
    this.password = frame.password ?? "";
    this.params = frame.params ?? {}; // of the backend; names that end in _ns are times in ns
    this.timeout = (this.params.timeout_ns ?? 1e9) / 1e6; // of one request, in ms
  }

  /** Returns {host, port} of each server that has a port of that name. */
  addresses(port = "client") {
    return (this.frame.nodes ?? []).map((n) => n.addresses[port]).filter(Boolean).map(split);
  }
}

function split(address) {
  const i = address.lastIndexOf(":");
  return { host: address.slice(0, i), port: Number(address.slice(i + 1)) };
}

/** An event that can be awaited. */
class Flag {
  up = false;
  waiting = new Set();

  raise() {
    this.up = true;
    for (const wake of this.waiting) wake();
  }

  /** Waits for it, or for a number of ms. */
  wait(ms) {
    return new Promise((resolve) => {
      if (this.up) return resolve();
      const wake = () => {
        clearTimeout(timer);
        this.waiting.delete(wake);
        resolve();
      };
      const timer = ms === undefined ? undefined : setTimeout(wake, ms);
      this.waiting.add(wake);
    });
  }
}

/** Runs tasks one after the other. */
class Turns {
  last = Promise.resolve();

  take(work) {
    const done = this.last.then(work);
    this.last = done.catch(() => {});
    return done;
  }
}

/** Random numbers of a seed: sfc32. */
class Random {
  constructor(seed) {
    const digest = createHash("sha256").update(seed).digest();
    this.state = [0, 4, 8, 12].map((i) => digest.readInt32LE(i));
  }

  /** In [0, 1). */
  next() {
    let [a, b, c, d] = this.state;
    const sum = (((a + b) | 0) + d) | 0;
    this.state = [b ^ (b >>> 9), (c + (c << 3)) | 0, (((c << 21) | (c >>> 11)) + sum) | 0, (d + 1) | 0];
    return (sum >>> 0) / 2 ** 32;
  }

  /** In [0, n). */
  below(n) {
    return Math.floor(this.next() * n);
  }

  exponential(mean) {
    return -Math.log(1 - this.next()) * mean;
  }
}

/** JSON whose integers may be BigInts. */
function encode(x) {
  if (typeof x === "bigint") return x.toString();
  if (Array.isArray(x)) return `[${x.map(encode)}]`;
  if (typeof x !== "object" || x === null) return JSON.stringify(x);
  const told = Object.entries(x).filter(([, value]) => value !== undefined);
  return `{${told.map(([key, value]) => `${JSON.stringify(key)}:${encode(value)}`)}}`;
}

/** Parses JSON; integers that a number cannot hold become BigInts. */
function decode(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g, (m) => (m[0] === '"' ? m : `"\\u0000${m}"`));
  return JSON.parse(marked, (_, v) => (typeof v === "string" && v[0] === "\0" ? BigInt(v.slice(1)) : v));
}

/** Standard output. Events are written in the order of their numbers and times. */
class Stream {
  lines = [];
  waiting = []; // callers that wait for the lines so far
  writing = false;
  scheduled = false;
  recording = false;
  seq = 0;
  last = 0n;
  stood = 0n;
  dropped = 0;
  silent = 0;

  /** Writes a frame after all events so far. When the promise resolves, the operating system has the frame. */
  send(type, content = {}) {
    this.lines.push(`{"type":"${type}","${type}":${encode(content)}}\n`);
    return this.flush();
  }

  flush() {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.write();
    });
  }

  /** Writes the waiting lines. Only one write is under way at a time, and it does not block the event loop. */
  write() {
    if (this.writing || this.lines.length === 0) {
      if (!this.writing) this.waiting.splice(0).forEach((wake) => wake());
      return;
    }
    const waiting = this.waiting.splice(0);
    this.writing = true;
    output.write(this.lines.splice(0).join(""), () => {
      this.writing = false;
      waiting.forEach((wake) => wake());
      this.write();
    });
  }

  /** Records an event and returns its number and time. The number is 0 if there was no room for it. */
  event(user, kind, phase, fields) {
    const t = later(now(), this.last);
    if (!this.recording) return [0, t];
    if (this.lines.length >= ROOM) {
      this.dropped++;
      this.silent++;
      return [0, t];
    }
    if (this.silent > 0) {
      this.put({ user, kind: "dropped", phase: "info", value: this.silent }, t);
      this.silent = 0;
    }
    this.put({ user, kind, phase, ...fields }, t);
    if (!this.scheduled) {
      this.scheduled = true;
      setImmediate().then(() => {
        this.scheduled = false;
        this.write();
      });
    }
    return [this.seq, t];
  }

  /** Records an event; it is written when the promise resolves. */
  async flushed(user, kind, phase, fields) {
    const [seq, t] = this.event(user, kind, phase, fields);
    if (seq) {
      await this.flush();
      this.still(user, t, now());
    }
    return seq;
  }

  put(event, t) {
    this.last = t;
    const whole = { time: t, seq: ++this.seq, ...event };
    whole.op ??= this.seq;
    let line = "";
    for (const key in whole) {
      const value = whole[key];
      if (value) line += `,"${key}":${typeof value === "string" ? JSON.stringify(value) : value}`;
    }
    this.lines.push(`{"type":"event","event":{${line.slice(1)}}}\n`);
  }

  /** Records that the user or the process did not run, without the part that is on record already. */
  still(user, since, until) {
    const stood = until - later(since, this.stood);
    if (stood > STALL) this.stood = this.event(user, "stall", "info", { value: stood })[1];
  }

  /** Stops recording, and returns how many events there were and how many were dropped for lack of room. */
  end() {
    this.recording = false;
    return { recorded: this.seq, dropped: this.dropped };
  }
}

const output = process.stdout; // for the protocol only, once main has begun
const later = (a, b) => (a > b ? a : b);

/** A user's connection to the resource. Values are BigInts. */
class Register {
  versions = new Map();

  constructor(start) {
    this.address = split(start.address);
    this.guard = start.guard ?? "";
  }

  read(hold, timeout) {
    return this.ask(hold, timeout, { op: "read" });
  }

  async write(hold, value, timeout) {
    if (this.guard === "check-then-write") {
      await this.ask(hold, timeout, { op: "check", value });
      await hold.user.at("token-checked");
    }
    await this.ask(hold, timeout, { op: "write", value });
  }

  async ask(hold, timeout, request) {
    Object.assign(request, { lock: hold.name, user: hold.user.name, grant: hold.op, token: hold.grant.token });
    if (this.guard === "cas-owner") request.owner = hold.grant.id;
    const [seen, version] = this.versions.get(hold.name) ?? [];
    if (this.guard.endsWith("-version") && seen === hold.op) request.version = version;
    const line = await this.exchange(`${encode(request)}\n`, timeout);
    const answer = decode(line);
    if (answer.outcome !== "ok") throw new (answer.fenced ? Fenced : Certain)(answer.error ?? "");
    this.versions.set(hold.name, [hold.op, answer.version ?? 0]);
    return BigInt(answer.value ?? 0);
  }

  /**
   * Sends a line and returns the answer. If none comes, it closes the connection: a late answer must never be taken for
   * the answer to another request.
   */
  exchange(line, timeout) {
    const socket = this.connected();
    return new Promise((resolve, reject) => {
      let text = "", reached = !socket.connecting;
      const hears = {
        connect: () => (reached = true),
        data: (part) => (text += part).endsWith("\n") && end(),
        error: (err) => end(err),
        close: () => end(new Error("connection: the register closed the connection")),
      };
      const end = (err) => {
        clearTimeout(timer);
        for (const event in hears) socket.off(event, hears[event]);
        if (!err) return resolve(text);
        this.close();
        reject(reached ? err : new NotSent(err.message));
      };
      for (const event in hears) socket.on(event, hears[event]);
      const timer = setTimeout(() => end(new Error("timeout: the register did not answer")), timeout);
      socket.write(line);
    });
  }

  connected() {
    if (!this.socket || this.socket.destroyed) {
      this.socket = connect({ ...this.address, noDelay: true });
      this.socket.setEncoding("utf8").on("error", () => {}); // also between requests
    }
    return this.socket;
  }

  close() {
    this.socket?.destroy();
    this.socket = undefined;
  }
}

/** Returns what an error means, fail (certainly no effect) or info (unknown), and its class. */
function outcome(err) {
  if (err instanceof Certain) return ["fail", err.constructor.code];
  const kind = `${nameOf(err)} ${err?.code ?? ""}`;
  if (/cancelled|abort/i.test(kind)) return ["info", "cancelled"];
  const text = `${kind} ${err?.message ?? ""}`;
  if (/time(d ?)?out/i.test(text)) return ["info", "timeout"];
  return ["info", err?.syscall || /connection|econn|epipe|socket/i.test(text) ? "connection" : "other"];
}

const nameOf = (err) => (err?.name && err.name !== "Error" ? err.name : err?.constructor?.name ?? typeof err);

/** Returns the text of an error, with its place in the program unless it is a Certain. */
function told(err) {
  const text = `${nameOf(err)}: ${err?.message ?? err}`;
  const program = basename(process.argv[1] ?? "");
  const line = (err?.stack ?? "").split("\n").find((l) => l.includes(`/${program}:`))?.match(/:(\d+):\d+\)?$/)?.[1];
  return err instanceof Certain || !line ? text : `${text} (${program}, line ${line})`;
}

/** A lock that a user holds. */
class Hold {
  lost = false;
  ended = false;
  over = new Flag();
  again = []; // the grants of its re-entries

  constructor(user, lock, op, grant) {
    Object.assign(this, { user, lock, op, grant });
    this.name = user.session.locks[lock];
    this.valid = grant.valid;
    this.fields = { lock: this.name, grant: op, token: grant.token };
  }

  /** Whether the grant stays valid for another margin nanoseconds. */
  stands(margin = 0) {
    return !this.lost && (this.valid === ENDLESS || (this.valid !== UNKNOWN && now() + BigInt(margin) < this.valid));
  }

  /** Subscribes to losses and renewals, and renews the grant if the start frame says so. */
  async follow() {
    const lock = this.user.lock;
    await lock.onLost?.(this.grant, () => this.gone());
    await lock.onRenewed?.(this.grant, (valid) => this.learned("renewed", { valid }));
    if (this.user.session.start.renew) this.keep();
  }

  async keep() {
    for (;;) {
      await this.over.wait(this.user.session.access.ttl / 3);
      if (this.over.up) return;
      try {
        await this.renew();
      } catch (err) {
        if (err instanceof Lost || err instanceof NotHeld) return; // other errors are recorded and counted
      }
    }
  }

  /** The grant is lost. */
  gone() {
    this.learned("lost", { lost: true });
  }

  /** Records what the library reports about the grant, until the hold ends. */
  learned(kind, change) {
    if (this.ended || this.lost) return;
    Object.assign(this, change);
    this.user.stream.event(this.user.name, kind, "info", { valid: this.valid, value: now(), ...this.fields });
  }

  /** Carries out an operation whose invoke is recorded. work returns its result and the fields of its ok record. */
  async done(kind, seq, work, fields) {
    let result, more;
    try {
      [result, more] = await work();
    } catch (err) {
      this.user.failed(kind, seq, err, fields);
      throw err;
    }
    if (seq) this.user.stream.event(this.user.name, kind, "ok", { op: seq, ...fields, ...more });
    return result;
  }

  invoke(kind, fields) {
    return this.user.stream.event(this.user.name, kind, "invoke", fields)[0];
  }

  async read(timeout = this.user.session.timeout) {
    await this.user.at("before-read");
    return this.done("read", this.invoke("read", this.fields), async () => {
      const value = await this.user.register.read(this, timeout);
      return [value, { value }];
    }, this.fields);
  }

  async write(value, timeout = this.user.session.timeout) {
    const { check, margin_ns: margin } = this.user.session.start;
    if ((check && this.lost) || (check === "validity" && !this.stands(margin))) {
      throw new Stopped("stopped before the write: the grant is lost or expired");
    }
    await this.user.at("before-write");
    const fields = { ...this.fields, value };
    await this.done("write", this.invoke("write", fields), async () => {
      await this.user.register.write(this, value, timeout);
      return [];
    }, fields);
  }

  async release(timeout) {
    await this.user.at("before-release");
    this.over.raise();
    return this.user.call.take(async () => { // after this no renewal is under way
      this.ended = true;
      const { stream, name } = this.user;
      const fields = { ...this.fields, valid: this.user.deadline(timeout) };
      const seq = await stream.flushed(name, "release", "invoke", fields);
      await this.done("release", seq, async () => [await this.user.giveBack(this.grant)], this.fields);
    });
  }

  /** Ends the hold of a lock that its user closed. It is unknown whether the service still keeps it. */
  async giveAway() {
    const { stream, name } = this.user;
    this.over.raise();
    this.ended = true;
    for (const kind of [...this.again.map(() => "leave"), "release"]) {
      const op = await stream.flushed(name, kind, "invoke", this.fields);
      if (op) stream.event(name, kind, "info", { op, code: "cancelled", ...this.fields });
    }
  }

  /** Takes the lock once more. */
  reenter(timeout = this.user.session.timeout) {
    return this.user.call.take(() => {
      const seq = this.invoke("reenter", { ...this.fields, valid: this.user.deadline(timeout) });
      return this.done("reenter", seq, async () => {
        const grant = await this.user.take(() => this.user.lock.reenter(this.grant, timeout));
        if (this.ended) throw new Cancelled("the lock was closed meanwhile");
        this.again.push(grant);
        this.valid = grant.valid;
        return [grant, { valid: grant.valid }];
      }, this.fields);
    });
  }

  /** Gives back the latest re-entry. */
  leave(timeout) {
    return this.user.call.take(async () => {
      if (this.ended) throw new Certain("the lock was closed meanwhile");
      const grant = this.again.pop(), { stream, name } = this.user;
      const seq = await stream.flushed(name, "leave", "invoke", { ...this.fields, valid: this.user.deadline(timeout) });
      try {
        await this.done("leave", seq, async () => [await this.user.giveBack(grant)], this.fields);
      } catch (err) {
        if (err instanceof Lost || err instanceof NotHeld) this.gone();
        throw err;
      }
    });
  }

  renew(timeout) {
    return this.user.call.take(async () => {
      if (this.ended) return;
      const seq = this.invoke("renew", { ...this.fields, valid: this.user.deadline(timeout) });
      try {
        await this.done("renew", seq, async () => {
          this.valid = await this.user.lock.renew(this.grant);
          return [undefined, { valid: this.valid }];
        }, this.fields);
      } catch (err) {
        if (err instanceof Lost || err instanceof NotHeld) this.gone();
        throw err;
      }
    });
  }

  check() {
    return this.user.call.take(() => {
      const seq = this.invoke("check", this.fields);
      return this.done("check", seq, async () => [await this.user.lock.check(this.grant)], this.fields);
    });
  }
}

/** One lock user. It runs a workload or carries out orders. */
class User {
  holds = new Map(); // by number of the lock
  given = new Map(); // the grant it released last, by number of the lock
  call = new Turns(); // of the lock's methods
  orders = new Turns();
  ordered = false;
  cycles = 0;
  lag = 0n;
  free = 0n;
  armed = new Map(); // actions of the armed points
  waiting = null;
  go = new Flag(); // lets the user go on from its point
  under = null; // the number of the acquire that is under way
  closed = false;

  constructor(session, number) {
    Object.assign(this, { session, number, stream: session.stream });
    this.name = `client-${session.start.index + 1}/${number}`;
    this.random = new Random(`${session.start.seed ?? 0}/${number}`);
  }

  async connect() {
    const s = this.session;
    if (!this.lock) {
      const lock = new s.factory(s.access);
      owners.set(lock, this);
      await lock.connect();
      this.lock = lock;
    }
    if (s.start.resource) this.register ??= new Register(s.start.resource);
  }

  /** Returns when a call that begins now must end. */
  deadline(timeout = this.session.timeout) {
    return now() + BigInt(Math.round(timeout * 1e6));
  }

  /** Makes the user wait or die when it next reaches a point. Returns why it cannot. */
  arm({ point, action }) {
    if (!point || !["wait", "die"].includes(action)) return "arm needs a point, and wait or die as its action";
    this.armed.set(point, action);
  }

  /** Lets the user go on from the point where it waits. Returns why it cannot. */
  goOn({ point }) {
    if (this.waiting === null || (point && point !== this.waiting)) {
      return `user ${this.number} does not wait at point ${point}`;
    }
    this.go.raise();
  }

  /** Cancels the acquire that is under way. The cancel is recorded before the acquire learns of it. */
  async giveUp() {
    const op = this.under;
    if (op === null) throw new Certain("no acquire is under way");
    if (!this.lock.cancel) throw new Certain("this lock has no cancel");
    if (op) await this.stream.flushed(this.name, "cancel", "info", { op });
    if (this.under === op) await this.lock.cancel();
  }

  /** Closes the lock, possibly during another call. The user's holds end here. */
  async close(timeout) {
    const held = [...this.holds.values()];
    this.closed = true;
    this.holds.clear();
    for (const h of held) await h.giveAway();
    const op = await this.stream.flushed(this.name, "close", "invoke", { valid: this.deadline(timeout) });
    try {
      await this.lock.close();
    } catch (err) {
      this.failed("close", op, err);
      throw err;
    }
    if (op) this.stream.event(this.name, "close", "ok", { op });
  }

  /** Releases a lock that the user does not hold. */
  releaseUnheld(lock, hold, timeout) {
    const name = this.session.locks[lock];
    if (!this.lock.releaseUnheld) throw new Certain("this lock cannot release without a grant");
    if (hold) throw new Certain(`user ${this.number} has ${name} in hand: want release`);
    return this.call.take(async () => {
      const asked = { lock: name, valid: this.deadline(timeout) };
      const op = await this.stream.flushed(this.name, "release-unheld", "invoke", asked);
      try {
        await this.lock.releaseUnheld(name, this.given.get(lock));
      } catch (err) {
        this.failed("release-unheld", op, err, { lock: name });
        throw err;
      }
      if (op) this.stream.event(this.name, "release-unheld", "ok", { op, lock: name });
    });
  }

  async acquire(lock, intended = 0n, timeout = this.session.timeout) {
    await setImmediate(); // a lock that never waits must not block the event loop
    while (this.stream.lines.length > CROWDED && !this.session.halt.up) await pause(1);
    if (intended) this.lag = later(this.lag, now() - later(intended, this.free));
    const name = this.session.locks[lock];
    const what = { lock: name, value: intended, valid: this.deadline(timeout) };
    const [seq, asked] = this.stream.event(this.name, "acquire", "invoke", what);
    this.under = seq;
    let grant;
    try {
      grant = await this.call.take(() => this.take(() => this.lock.acquire(name, timeout)));
    } catch (err) {
      this.failed("acquire", seq, err, { lock: name });
      this.free = now();
      throw err;
    } finally {
      this.under = null;
    }
    this.cycles++;
    const { token, valid, sent } = grant, h = new Hold(this, lock, seq, grant);
    if (seq) {
      const value = later(sent, asked);
      await this.stream.flushed(this.name, "acquire", "ok", { op: seq, lock: name, grant: seq, token, valid, value });
    }
    await h.follow();
    await this.at("acquired");
    return h;
  }

  async take(ask) {
    await this.at("before-lock");
    const grant = await ask();
    await this.at("lock-done");
    if (grant.valid === BY_RENEW) {
      try {
        grant.valid = await this.lock.renew(grant);
      } catch (err) {
        await this.giveBack(grant);
        throw err;
      }
    }
    return grant;
  }

  async giveBack(grant) {
    await this.at("before-unlock");
    await this.lock.release(grant);
    await this.at("unlock-done");
  }

  failed(kind, op, err, fields) {
    const [phase, code] = outcome(err);
    this.session.tally(err);
    if (op) this.stream.event(this.name, kind, phase, { op, code, ...fields });
  }

  at(point) {
    return this.armed.size > 0 ? this.reached(point) : undefined;
  }

  async reached(point) {
    const action = this.armed.get(point);
    if (!this.armed.delete(point) || this.session.halt.up) return;
    this.go = new Flag(); // a later stop finds the user waiting
    this.waiting = point;
    await this.stream.send("point", { user: this.number, point, time: now() });
    if (action === "die") {
      process.kill(process.pid, "SIGKILL");
      process.exit(137); // if this is the first process of a pid namespace, the kernel ignores its SIGKILL
    }
    await this.go.wait();
    this.waiting = null;
  }

  /** Runs a user with a workload. */
  async live() {
    await this.session.sleepUntil(this.session.go);
    this.free = now();
    await this.session.attempt(() => WORKLOADS[this.session.start.workload.use](this.session, this));
  }

  /** Carries out an order after all earlier ones. */
  obey(order) {
    this.ordered = true;
    return this.orders.take(() => this.answer(order, () => this.carryOut(order)));
  }

  /** Carries out an order and sends the result. */
  async answer(order, work) {
    let answer = { id: order.id, outcome: "ok" };
    try {
      if (this.session.halt.up) throw new Certain("the client was stopped");
      await this.connect();
      answer = { ...answer, ...(await work()) };
    } catch (err) {
      answer = { ...answer, outcome: outcome(err)[0], error: told(err) };
    }
    await this.stream.send("result", answer);
  }

  /** Closes the lock even if another call is under way. */
  closeNow(order) {
    return this.answer(order, () => {
      if (this.closed) throw new Certain(`user ${this.number} has closed its lock`);
      return this.close(order.timeout_ns ? order.timeout_ns / 1e6 : undefined);
    });
  }

  async carryOut({ do: what, lock = 0, mode, value, timeout_ns: ns }) {
    let h = this.holds.get(lock);
    const timeout = ns ? ns / 1e6 : undefined, name = this.session.locks[lock];
    if (this.closed) throw new Certain(`user ${this.number} has closed its lock`);
    if (what === "acquire" || what === "reenter") {
      if (mode && mode !== "exclusive") throw new Certain("this lock is only exclusive");
      if (h?.stands() && what === "reenter" && this.lock.reenter) {
        const again = await h.reenter(timeout);
        return { value: h.grant.token, grant: String(again.id) };
      }
      if (h?.stands()) throw new Certain(`user ${this.number} has ${name} in hand already`);
      h?.over.raise();
      h?.gone();
      this.holds.delete(lock);
      h = await this.acquire(lock, 0n, timeout);
      if (this.closed) await h.giveAway();
      else this.holds.set(lock, h);
      return { value: h.grant.token, grant: String(h.grant.id) };
    }
    if (what === "release-unheld") return this.releaseUnheld(lock, h, timeout);
    if (!h) throw new Certain(`user ${this.number} has no grant of ${name} in hand`);
    if ((what === "read" || what === "write") && !this.register) throw new Certain("the run has no resource");
    if ((what === "renew" || what === "check") && !this.lock[what]) throw new Certain(`this lock has no ${what}`);
    if (what === "read") return { value: await h.read(timeout) };
    if (what === "write") return h.write(BigInt(value ?? 0), timeout);
    if (what === "release" && h.again.length > 0) return h.leave(timeout);
    if (what === "release") {
      this.holds.delete(lock);
      this.given.set(lock, h.grant);
    }
    return h[what](timeout);
  }

  /** Waits for the last order and releases the user's locks. */
  async finish() {
    if (!this.ordered) return;
    await this.orders.last;
    for (const h of this.holds.values()) {
      while (h.again.length > 0) await this.session.attempt(() => h.leave());
      await this.session.attempt(() => h.release());
    }
  }
}

// The workloads, each for one user. A cycle that has begun is finished, and its grant released.

/** Runs cycles until the stop, and pauses after one that did not get the lock. */
async function closed(s, u, cycle) {
  while (!s.halt.up) {
    if (!(await s.attempt(cycle))) await s.sleep(5_000_000 + u.random.below(10_000_000));
    await s.sleep(s.params.think ?? 0);
  }
}

/** Does some work under an acquired lock, and releases it. */
async function under(s, h, work) {
  await s.attempt(() => work(h));
  await s.attempt(() => h.release());
}

/** Runs closed cycles that do some work under the lock. */
const inside = (s, u, choose, work) => closed(s, u, async () => under(s, await u.acquire(await choose()), work));

const anyOf = (s, u) => u.random.below(s.params.locks ?? 1);

function holdTime(s, u) {
  const hold = s.params.hold ?? 0;
  return s.params.spread ? u.random.below(hold + 1) : hold;
}

/** The first of the elements that only this user writes; each next one is larger by one. */
const firstElement = (s, u) => BigInt(s.firstUser + u.number + 1) << 32n;

async function acquireRelease(s, u) {
  const choose = () => (s.params.own_locks ? s.firstUser + u.number : anyOf(s, u));
  if (!s.params.rate) return inside(s, u, choose, () => s.sleep(holdTime(s, u)));
  for (let t; (t = await s.nextArrival()) !== undefined; u.free = now()) {
    await s.attempt(async () => under(s, await u.acquire(choose(), t), () => s.sleep(holdTime(s, u))));
  }
}

const counter = (s, u) => inside(s, u, () => anyOf(s, u), async (h) => {
  const n = await h.read();
  await s.sleep(holdTime(s, u));
  await h.write(n + 1n);
});

function guardedSet(s, u) {
  let element = firstElement(s, u);
  return inside(s, u, () => anyOf(s, u), async (h) => {
    await h.read();
    await s.sleep(holdTime(s, u));
    await h.write(++element);
  });
}

const inventory = (s, u) => inside(s, u, () => anyOf(s, u), async (h) => {
  const sold = await h.read();
  if (sold >= s.params.stock) return;
  await s.sleep(holdTime(s, u));
  await h.write(sold + 1n);
});

function booking(s, u) {
  let seat = 0, made = firstElement(s, u);
  const choose = async () => {
    if (seat === s.params.seats) {
      await s.halt.wait();
      throw new Stopped("all seats are taken");
    }
    return seat;
  };
  return inside(s, u, choose, async (h) => {
    if (await h.read()) {
      seat++;
      return;
    }
    await s.sleep(holdTime(s, u));
    await h.write(++made);
  });
}

function balance(s, u) {
  const transfer = async (first, second, amount) => {
    const a = await first.read(), b = await second.read();
    await s.sleep(holdTime(s, u));
    await first.write(a - amount);
    await second.write(b + amount);
  };
  return closed(s, u, async () => {
    const n = s.params.accounts, one = u.random.below(n), other = (one + 1 + u.random.below(n - 1)) % n;
    const amount = BigInt((1 + u.random.below(s.params.amount)) * (u.random.below(2) ? 1 : -1));
    const first = await u.acquire(Math.min(one, other)); // locks are taken in order, so that no two users deadlock
    try {
      await under(s, await u.acquire(Math.max(one, other)), (second) => transfer(first, second, amount));
    } finally {
      await s.attempt(() => first.release());
    }
  });
}

const holdRenew = (s, u) => inside(s, u, () => anyOf(s, u), async (h) => {
  const touch = s.params.touch ?? 0;
  for (let left = s.params.hold; left > 0 && !s.halt.up; left -= touch || left) {
    await s.sleep(Math.min(touch || left, left));
    if (touch) await h.write((await h.read()) + 1n);
  }
});

/** Does some work under a lock at moments that all users share. The rounds take the locks in turn. */
async function rounds(s, u, locks, work) {
  const every = BigInt(s.params.every);
  while (!s.halt.up) {
    const n = now() / every + 1n, t = n * every;
    if (!(await s.sleepUntil(t))) return;
    await s.attempt(async () => under(s, await u.acquire(Number(n % BigInt(locks)), t), (h) => work(h, n)));
  }
}

const stampede = (s, u) => rounds(s, u, 1, () => s.sleep(holdTime(s, u)));

const once = (s, u) => rounds(s, u, s.params.jobs, async (h, n) => {
  if ((await h.read()) >= n) return;
  await s.sleep(holdTime(s, u));
  await h.write(n);
});

function spread(s, u) {
  const { locks, pick, skew, hold = 0 } = s.params, weights = [];
  for (let k = 0, sum = 0; k < locks; k++) weights.push((sum += pick === "zipf" ? (k + 1) ** -skew : 1));
  const choose = () => {
    const x = u.random.next() * weights[locks - 1];
    return weights.findIndex((w) => x < w);
  };
  return inside(s, u, choose, () => s.sleep(hold));
}

const WORKLOADS = {
  "acquire-release": acquireRelease, "guarded-set": guardedSet, "hold-renew": holdRenew,
  counter, inventory, booking, balance, stampede, spread, once,
};

const ORDERS = [
  "acquire", "reenter", "release", "renew", "check", "read", "write", "arm", "continue", "cancel", "close",
  "release-unheld",
];
/** The methods for the orders that not every lock supports. */
const OPTIONAL = {
  reenter: "reenter", renew: "renew", check: "check", cancel: "cancel", "release-unheld": "releaseUnheld",
};

/** A client between its start and its end. */
class Session {
  stream = new Stream();
  halt = new Flag();
  turn = new Turns(); // for the users of an open loop
  frames = new Turns();
  start = null;
  users = new Map();
  lives = [];
  errors = new Map();
  counted = new WeakSet();
  longest = 0n;
  go = 0n;
  skipped = 0;
  params = {};
  gap = 0;
  arrival = 0; // ns after go

  constructor(factory, process, libraries) {
    Object.assign(this, { factory, process, libraries });
  }

  /** Runs the client. Frames are handled one after the other, except pings. */
  serve() {
    const { prototype: offers, points, keeps, permits, elsewhere, hung } = this.factory;
    process.on("uncaughtException", (err) => this.fail(err));
    output.on("error", () => process.exit(1)); // the supervisor no longer reads
    this.stream.send("hello", {
      version: VERSION, formats: ["jsonl"], pid: process.pid, process: this.process,
      software: `Node.js ${process.versions.node}`, libraries: this.libraries,
      boot_id: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
      time_ns: readlinkSync("/proc/self/ns/time"), now: now(),
      points: [...POINTS, ...points], orders: ["close", ...Object.keys(OPTIONAL).filter((o) => offers[OPTIONAL[o]])],
      tells: Boolean(offers.onLost), keeps, permits, elsewhere,
      hung: hung && { ttls: hung.ttls ?? 0, plus_ns: Math.round((hung.plus ?? 0) * 1e6) },
    });
    let text = "";
    process.stdin.setEncoding("utf8");
    process.stdin.on("data", (part) => {
      const lines = (text + part).split("\n");
      text = lines.pop();
      for (const line of lines) this.receive(decode(line));
    });
    process.stdin.on("close", () => process.exit(1)); // the supervisor is gone
  }

  receive(frame) {
    const content = frame[frame.type] ?? {};
    const take = {
      start: () => this.onStart(content), go: () => this.onGo(content), command: () => this.onCommand(content),
      stop: () => void this.finish().catch((err) => this.fail(err)),
    }[frame.type];
    if (frame.type === "ping") {
      const wall = BigInt(Date.now()) * 1_000_000n;
      this.stream.send("pong", { id: content.id, now: now(), wall, mono: now() });
    } else if (take) {
      this.frames.take(take).catch((err) => this.fail(err));
    } else {
      this.fail(new Error(`a client of lockquake.mjs does not know the frame ${frame.type}`));
    }
  }

  /** Reports an error and ends the client. */
  async fail(err) {
    await this.stream.send("failed", { error: told(err) });
    process.exit(1);
  }

  async onStart(start) {
    if (start.version !== VERSION) {
      throw new Error(`version ${start.version} of the protocol; this program speaks ${VERSION}`);
    }
    const { workload: w, resource: r } = start;
    this.start = start;
    this.locks = start.locks;
    this.access = new Access(start.access ?? {}, start.ttl_ns);
    this.timeout = (start.timeout_ns || 10e9) / 1e6;
    if (w && !Object.hasOwn(WORKLOADS, w.use)) throw new Error(`there is no workload ${w.use}`);
    if (r && (r.use !== "register" || r.guard === "sequencer")) {
      throw new Error(`resource ${r.use} with guard ${r.guard}: this client supports only the register, without its sequencer`);
    }
    if (w) {
      this.params = w.params ?? {};
      this.firstUser = start.index * w.users;
      if (this.params.shared) throw new Error("this lock is only exclusive");
    }
    this.stream.recording = Boolean(start.record);
    this.watchSelf();
    for (let number = 0; number < (w ? w.users : 1); number++) await this.person(number).connect();
    const { renew, onLost } = this.users.get(0).lock;
    if (start.renew && !renew) throw new Error("grants of this lock cannot be extended");
    if (start.check === "signal" && !onLost && !start.renew) {
      throw new Error("check is signal, but this lock reports no loss");
    }
    await this.stream.send("ready");
  }

  onGo(go) {
    this.go = BigInt(go.time);
    this.cpu = process.cpuUsage();
    if (this.start.workload) this.lives = [...this.users.values()].map((u) => u.live());
  }

  person(number) {
    if (!this.users.has(number)) this.users.set(number, new User(this, number));
    return this.users.get(number);
  }

  /** Answers an order, or has its user carry it out. */
  onCommand(order) {
    const { id, do: what, user: number = 0, lock = 0 } = order;
    const answer = (error) => {
      this.stream.send("result", { id, outcome: error ? "fail" : "ok", error });
    };
    if (!ORDERS.includes(what)) return answer(`unknown order ${what}`);
    if (!this.locks[lock] || !(number >= 0 && number < 1 << 16)) return answer(`no lock ${lock} or no user ${number}`);
    const u = this.person(number);
    if (what === "arm") return answer(u.arm(order));
    if (what === "continue") return answer(u.goOn(order));
    if (what === "cancel") return void u.giveUp().then(() => answer(), (err) => answer(told(err)));
    if (number < (this.start.workload?.users ?? 0)) {
      return answer(`user ${number} runs a workload: it can only be armed and continued`);
    }
    if (what === "close") return void u.closeNow(order);
    u.obey(order);
  }

  /** Runs an action and reports whether it succeeded. An error is counted. */
  async attempt(work) {
    try {
      await work();
      return true;
    } catch (err) {
      if (!(err instanceof Stopped)) this.tally(err);
      return false;
    }
  }

  tally(err) {
    if (this.counted.has(err)) return;
    if (err instanceof Object) this.counted.add(err);
    let text = told(err);
    if (!this.errors.has(text) && this.errors.size >= 19) text = "other errors";
    this.errors.set(text, (this.errors.get(text) ?? 0) + 1);
  }

  /** Waits, at most until the stop. */
  sleep(ns) {
    return ns > 0 ? this.sleepUntil(now() + BigInt(Math.round(ns))) : undefined;
  }

  /** Waits until a time; true if it came before the stop. Node's timers may be early. */
  async sleepUntil(t) {
    for (let left; !this.halt.up && (left = t - now()) > 0n;) {
      await this.halt.wait(Math.min(Math.ceil(Number(left) / 1e6), 1e9));
    }
    return !this.halt.up;
  }

  /** Waits for the next arrival of an open loop, and returns undefined at the stop. Other users wait for their turn. */
  nextArrival() {
    return this.turn.take(async () => {
      if (!this.gap) {
        this.random = new Random(`${this.start.seed ?? 0}/arrivals`);
        const w = this.start.workload;
        this.gap = ((1e9 / this.params.rate) * (w.total || w.users)) / w.users;
        this.arrival = this.params.arrivals === "uniform" ? this.gap * this.random.next() : this.step();
      }
      if (this.halt.up) return undefined;
      const t = this.due();
      this.arrival += this.step();
      if (await this.sleepUntil(t)) return t;
      this.skipped += t <= now();
      return undefined;
    });
  }

  due() {
    return this.go + BigInt(Math.round(this.arrival));
  }

  step() {
    return this.params.arrivals === "uniform" ? this.gap : this.random.exponential(this.gap);
  }

  /** Records when the process or its event loop did not run. */
  watchSelf() {
    let last = now();
    setInterval(() => {
      const t = now();
      this.longest = later(this.longest, t - last);
      this.stream.still(`client-${this.start.index + 1}/0`, last, t);
      last = t;
    }, BEAT);
  }

  /** Ends the users, sends what is left, and says goodbye. */
  async finish() {
    const ended = now(), users = [...this.users.values()];
    this.halt.raise();
    for (const u of users) u.go.raise();
    await Promise.all([...this.lives, ...users.map((u) => u.finish())]);
    await Promise.race([this.disconnect(users), pause(3000)]);
    for (; this.gap && this.due() <= ended; this.arrival += this.step()) this.skipped++;
    const { user, system } = process.cpuUsage(this.cpu);
    await this.stream.send("done", {
      ...this.stream.end(), stall_ns: this.longest, cycles: users.reduce((sum, u) => sum + u.cycles, 0),
      errors: Object.fromEntries(this.errors), lag_ns: users.reduce((lag, u) => later(lag, u.lag), 0n),
      unstarted: this.skipped, cpu_ns: (user + system) * 1000,
    });
    process.exit(0);
  }

  async disconnect(users) {
    for (const u of users) {
      if (u.lock && !u.closed) await this.attempt(() => u.lock.close());
      u.register?.close();
    }
  }
}

/**
 * Run a client of a subclass of Lock. name is what reports call the program, libraries are the versions of its lock's
 * libraries. From here on the program's output goes to standard error.
 */
export function main(factory, name, libraries = {}) {
  globalThis.console = new Console(process.stderr);
  Object.defineProperty(process, "stdout", { get: () => process.stderr });
  new Session(factory, name, libraries).serve();
}
