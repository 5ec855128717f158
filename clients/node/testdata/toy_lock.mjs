// A lock among the users of one process, for tests. The first argument names the rule it breaks.
import * as lockquake from "../lockquake.mjs";

const KIND = process.argv[2] ?? "";
const owners = new Map(); // the owners of each lock
let numbers = 0;

class ToyLock extends lockquake.Lock {
  static points = [KIND === "no-points" ? "no-such-point" : "taken"];

  connect() {
    console.log("what a program prints does not come between frames");
  }

  async acquire(name, timeout) {
    const sent = lockquake.now(), until = Date.now() + timeout;
    this.givenUp = false;
    while (KIND !== "never-excludes" && owners.get(name)?.size >= this.access.permits + (KIND === "one-more")) {
      if ((this.givenUp && KIND !== "deaf") || Date.now() > until) throw new lockquake.Contended();
      await new Promise((wake) => setTimeout(wake, 5));
    }
    const id = `owner-${++numbers}`;
    owners.set(name, (owners.get(name) ?? new Set()).add(id));
    await this.at("taken");
    if (KIND === "stands-still") for (const end = lockquake.now() + 50_000_000n; lockquake.now() < end;);
    const grant = this.grant(id, sent, { token: numbers, handle: name });
    if (KIND === "no-valid") grant.valid = 0;
    if (KIND === "by-renew") grant.valid = lockquake.BY_RENEW;
    if (KIND === "late-valid") grant.valid += this.access.ttlNs;
    return grant;
  }

  release(grant) {
    this.check(grant);
    owners.get(grant.handle)?.delete(grant.id);
  }

  renew() {
    return lockquake.valid(lockquake.now(), this.access.ttlNs);
  }

  check(grant) {
    if (!owners.get(grant.handle)?.has(grant.id) && KIND !== "never-excludes") throw new lockquake.NotHeld();
  }

  cancel() {
    this.givenUp = true;
  }
}

/** A lock that a holder can take again. forgets: the first release frees it. */
class Reentrant extends ToyLock {
  entries = 0;

  reenter(grant) {
    this.entries++;
    return this.grant(grant.id, lockquake.now(), { token: grant.token, handle: grant.handle });
  }

  release(grant) {
    if (this.entries === 0 || KIND === "forgets") super.release(grant);
    this.entries = Math.max(this.entries - 1, 0);
  }
}

/** A lock that several users can hold. */
class Counting extends ToyLock {
  static permits = true;
}

/** A library that reports each grant as lost at once. */
class Losing extends ToyLock {
  onLost(grant, tell) {
    tell();
  }
}

/** A library that renews by itself and reports it. */
class Renewing extends ToyLock {
  onRenewed(grant, tell) {
    tell(this.renew());
  }
}

/** A library that renews by itself, and stops for a user that hangs. */
class Bounded extends Renewing {
  static hung = KIND === "bounded" ? { ttls: 3, plus: 500 } : {};
}

const toys = {
  loses: Losing, renews: Renewing, reenters: Reentrant, forgets: Reentrant, permits: Counting, "one-more": Counting,
  bounded: Bounded, "no-bound": Bounded,
};
lockquake.main(toys[KIND] ?? ToyLock, "toy", { toy: "1" });
