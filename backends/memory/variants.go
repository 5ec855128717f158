package memory

import (
	"context"
	"errors"
	"hash/crc32"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// variant is a lock of this backend.
type variant struct {
	name  string
	doc   string
	wrong string
	found backends.Found
	flaws flaws

	reenters bool // a holder can take it again
	permits  bool // it has as many permits as the run says
	watchdog bool // grants are renewed in the background
}

// variants lists the locks; the first is the right one.
var variants = []variant{
	{
		name: "exact",
		doc:  "Exclusive, first come first served, TTL by the monotonic clock, a token that grows with each grant.",
	},
	{
		name: metered,
		doc:  "As exact, with known service times: the positive control of `lockquake capacity`.",
	},
	{
		name:    "semaphore",
		doc:     "As exact, with `backend.permits` permits.",
		permits: true,
	},
	{
		name:     "counts-entries",
		doc:      "As exact, and re-entrant: it is free after as many releases as acquires.",
		reenters: true,
	},
	{
		name:     "watchdog",
		doc:      "As exact, renewed in the background for three TTLs after the last call of its user.",
		watchdog: true,
	},
	{
		name:     "renews-for-ever",
		doc:      "As watchdog, which is to stop three TTLs after the last call of its user and does not.",
		wrong:    "a user that hangs keeps the lock for as long as its process lives, longer than the lock declares",
		found:    backends.FoundIn("hung-user", "a lock that is kept for a hung user", "longest_wait_ms <"),
		watchdog: true,
		flaws:    flaws{renewsForever: true},
	},
	{
		name:    "grants-one-more",
		doc:     "A lock with several permits that grants one more than it has.",
		wrong:   "more users hold it than it has permits",
		found:   backends.FoundIn("permits", "a double grant", "double_grants 0: found", "permits"),
		permits: true,
		flaws:   flaws{oneMore: true},
	},
	{
		name:     "forgets-entries",
		doc:      "A re-entrant lock that is free after the first release, however often its holder took it.",
		wrong:    "it grants again before its holder has released all its entries",
		found:    backends.FoundIn("reentry", "a double grant", "double_grants 0: found", "reentry"),
		reenters: true,
		flaws:    flaws{forgetsEntries: true},
	},
	{
		name:  "admits-process",
		doc:   "A re-entrant lock that does not distinguish the users of a process.",
		wrong: "it grants a lock that another user of the process holds",
		found: backends.FoundIn("contention", "a double grant", "double_grants 0: found",
			"cancel", "check", "exclusion-crowd", "exclusion-pair", "expiry", "reentry",
			"release-forged", "release-point", "release-stale", "renewal", "token-growth", "token-stopped",
		),
		reenters: true,
		flaws:    flaws{admitsProcess: true},
	},
	{
		name:  "never-excludes",
		doc:   "Grants every request.",
		wrong: "it grants a lock that another user holds",
		found: backends.FoundIn("contention", "a double grant", "double_grants 0: found",
			"cancel", "exclusion-crowd", "exclusion-pair", "expiry", "order",
			"release-forged", "release-point", "release-stale", "renewal", "token-growth", "token-stopped",
		),
		flaws: flaws{neverExcludes: true},
	},
	{
		name:  "expires-early",
		doc:   "Frees a lock after half of the TTL that it promised.",
		wrong: "it grants again while the holder's grant is still valid",
		found: backends.FoundIn("late-release", "a double grant", "double_grants 0: found",
			"expiry", "renewal", "token-stopped",
		),
		flaws: flaws{expiresEarly: true},
	},
	{
		name:  "cuts-ttl",
		doc:   "Truncates a TTL to whole seconds.",
		wrong: "it grants again while the holder's grant is still valid",
		found: backends.FoundIn("odd-ttl", "a double grant", "double_grants 0: found"),
		flaws: flaws{cutsTTL: true},
	},
	{
		name:  "wraps-ttl",
		doc:   "Keeps a TTL in 32 bits of milliseconds.",
		wrong: "it grants again while the holder's grant is still valid",
		found: backends.FoundIn("long-ttl", "a double grant", "double_grants 0: found"),
		flaws: flaws{wrapsTTL: true},
	},
	{
		name:  "forgets-renewals",
		doc:   "Confirms a renewal but keeps the old end.",
		wrong: "it grants again while a renewed grant is still valid",
		found: backends.FoundIn("renewal", "a double grant", "double_grants 0: found", "renewal"),
		flaws: flaws{forgetsRenewals: true},
	},
	{
		name:  "retakes",
		doc:   "Renews an expired grant by taking the lock again, if it is free.",
		wrong: "its holder never learns that others had the lock meanwhile",
		found: backends.FoundIn("lapsed-renewal", "a renewal of a lost grant", "step 4, renew of A, was done", "renewal"),
		flaws: flaws{retakes: true},
	},
	{
		name:  "reuses-tokens",
		doc:   "Gives two grants in a row the same token.",
		wrong: "a fence cannot tell a holder from the one before it",
		found: backends.FoundIn("late-release", "a token regression", "token_regressions 0: found", "token-growth"),
		flaws: flaws{reusesTokens: true},
	},
	{
		name:  "falling-tokens",
		doc:   "Gives every fourth grant a lower token than the one before.",
		wrong: "a fence refuses the holder and lets an older one through",
		found: backends.FoundIn("contention", "a token regression", "token_regressions 0: found", "token-growth"),
		flaws: flaws{fallingTokens: true},
	},
	{
		name:  "wraps-tokens",
		doc:   "Restarts its tokens after 1000 grants.",
		wrong: "a fence refuses every holder after the thousandth, and lets an older one through",
		found: backends.FoundIn("many-holds", "a token regression", "token_regressions 0: found"),
		flaws: flaws{wrapsTokens: true},
	},
	{
		name:  "late-fence",
		doc:   "Draws the token in a second step after the grant, without checking that the grant is still valid.",
		wrong: "a holder that was stopped between the two steps gets a higher token than its successor",
		found: backends.FoundIn("late-token-granted", "a false refusal", "false_refusals 0: found", "token-stopped"),
		flaws: flaws{lateFence: true},
	},
	{
		name:  "frees-foreign",
		doc:   "A release frees the lock of any holder.",
		wrong: "the late release of an old holder frees the lock of the new one",
		found: backends.FoundIn("late-release", "a double grant", "double_grants 0: found",
			"release-forged", "release-point", "release-stale",
		),
		flaws: flaws{freesForeign: true},
	},
	{
		name:  "likens-owners",
		doc:   "Compares the owner of a lock by the first characters alone.",
		wrong: "the late release of owner 1 frees the lock of owner 11",
		found: backends.FoundIn("owners-apart", "a double grant", "double_grants 0: found"),
		flaws: flaws{likensOwners: true},
	},
	{
		name:  "frees-again",
		doc:   "A second release of one grant frees the lock of any holder.",
		wrong: "a holder that releases twice frees the lock of the next one",
		found: backends.FoundIn("unheld-release", "a release by a user without the lock that frees it",
			"unheld_frees 0: found",
		),
		flaws: flaws{freesAgain: true},
	},
	{
		name:  "frees-beside",
		doc:   "A release by an object without a grant frees the lock of another object of the same process.",
		wrong: "an object that never had the lock frees it for its process",
		found: backends.FoundIn("unheld-release", "a release by a user without the lock that frees it",
			"unheld_frees 0: found", "release-forged",
		),
		flaws: flaws{freesBeside: true},
	},
	{
		name:  "never-expires",
		doc:   "Keeps a lock until it is released.",
		wrong: "a holder that died keeps the lock for ever",
		found: backends.FoundIn("overdue", "a lock that is held beyond its validity", "held_beyond_validity_ms <",
			"check", "expiry", "release-point", "release-stale", "token-stopped",
		),
		flaws: flaws{neverExpires: true},
	},
	{
		name:  "last-first",
		doc:   "Serves the user who came last.",
		wrong: "users that wait are starved by those who come later",
		found: backends.FoundIn("queue", "a starved user", "starved_users 0: found", "order"),
		flaws: flaws{lastFirst: true},
	},
	{
		name:  "never-refuses",
		doc:   "Confirms every renewal and release, also of lost grants.",
		wrong: "a holder that has lost the lock gets the answer that it still has it",
		found: backends.FoundIn("late-release", "a release of a lost grant that is answered ok",
			"releases_of_nothing 0: found",
			"release-forged", "renewal",
		),
		flaws: flaws{neverRefuses: true},
	},
	{
		name:  "keeps-released",
		doc:   "Confirms a release but keeps the lock until it expires.",
		wrong: "others wait for a lock without a holder",
		found: backends.FoundIn("answers", "a false result", "false_results 0: found",
			"cancel", "check", "close", "exclusion-pair", "order", "release-point", "renewal", "token-growth",
		),
		flaws: flaws{keepsReleased: true},
	},
	{
		name:  "denies-renewals",
		doc:   "Renews the grant but answers that it is gone.",
		wrong: "a holder gives up a lock that it still has, and no other user gets it",
		found: backends.FoundIn("answers", "a false result", "false_results 0: found", "renewal", "validity-late"),
		flaws: flaws{deniesRenewals: true},
	},
	{
		name:  "grants-to-nobody",
		doc:   "Grants the lock to waiters who have given up.",
		wrong: "others wait for a lock without a holder",
		found: backends.FoundIn("gives-up", "an orphan", "orphans 0: found", "cancel"),
		flaws: flaws{grantsToNobody: true},
	},
	{
		name:  "storms",
		doc:   "Retries without a pause.",
		wrong: "each waiter keeps the store busy",
		found: backends.FoundIn("waiting", "a retry storm", "requests_per_wait_s <500: measured"),
		flaws: flaws{storms: true},
	},
	{
		name:  "deaf",
		doc:   "A waiter keeps waiting after its deadline or a cancel.",
		wrong: "an acquire outlives its deadline, and a waiter cannot give up",
		found: backends.FoundIn("cancel", "a deaf wait", "deaf_waits 0: found", "cancel"),
		flaws: flaws{deaf: true},
	},
	{
		name:  "strands-waiters",
		doc:   "A wait continues after its lock object is closed.",
		wrong: "a user that closes its lock object waits for as long as others hold the lock",
		found: backends.FoundIn("close", "a deaf wait", "deaf_waits 0: found"),
		flaws: flaws{strandsWaiters: true},
	},
	{
		name:  "waits-when-gone",
		doc:   "A renewal or release of a lost grant answers only when the lock is free.",
		wrong: "a holder that lost the lock hangs in its next call for as long as others hold it, whatever its deadline",
		found: backends.FoundIn("late-calls", "deaf waits", "deaf_waits 0: found"),
		flaws: flaws{waitsWhenGone: true},
	},
	{
		name:  "never-tells",
		doc:   "Claims to report losses, but reports none.",
		wrong: "a holder that lost the lock goes on as if it had it",
		found: backends.FoundIn("news", "an untold loss", "untold_losses 0: found", "loss"),
		flaws: flaws{neverTells: true},
	},
	{
		name:  "tells-late",
		doc:   "Reports a loss one and a half TTLs late.",
		wrong: "a holder learns of its loss long after another user got the lock",
		found: backends.FoundIn("news", "an untold loss: the report comes after the bound", "untold_losses 0: found",
			"loss",
		),
		flaws: flaws{tellsLate: true},
	},
	{
		name:  "wedges",
		doc:   "A lock object that has lost a grant never asks the store again.",
		wrong: "a user that lost the lock once never gets it again",
		found: backends.FoundIn("again", "a wedge", "wedges 0: found"),
		flaws: flaws{wedges: true},
	},
	{
		name:  "mixes-names",
		doc:   "Cuts the name of a lock at its first slash.",
		wrong: "a lock cannot be taken while another one is held",
		found: backends.FoundIn("like-names", "a stuck lock", "stuck_locks 0: found"),
		flaws: flaws{key: firstPart},
	},
	{
		name:  "hashes-names",
		doc:   "Identifies a lock by the CRC32 of its name.",
		wrong: "a lock cannot be taken while another one is held",
		found: backends.FoundIn("names-apart", "a stuck lock", "stuck_locks 0: found"),
		flaws: flaws{key: crc32Of},
	},
	{
		name:  "shortens-hashes",
		doc:   "Identifies a lock by the 32 bits of the FNV-1a hash of its name.",
		wrong: "a lock cannot be taken while another one is held",
		found: backends.FoundIn("names-paired", "a stuck lock", "stuck_ms_max <"),
		flaws: flaws{key: fnv1aOf},
	},
	{
		name:  "cuts-names",
		doc:   "Identifies a lock by the last 64 bytes of its name.",
		wrong: "a lock cannot be taken while another one is held",
		found: backends.FoundIn("names-paired", "a stuck lock", "stuck_ms_max <"),
		flaws: flaws{key: last64},
	},
	{
		name:  "loses-wakeups",
		doc:   "Wakes no waiter at every twentieth release; the first waiter gets the lock when the TTL ends.",
		wrong: "a lock stays free while users wait for it",
		found: backends.FoundIn("contention", "a lost wake-up", "stuck_ms_max <"),
		flaws: flaws{losesWakeups: true},
	},
	{
		name:  "leaves-records",
		doc:   "Keeps a record of each grant for ever.",
		wrong: "the store grows with every grant, until it is full",
		found: backends.FoundIn("many-holds", "leftovers", "leftovers 0: found"),
		flaws: flaws{leavesRecords: true},
	},
	{
		name:  "leaves-waits",
		doc:   "Keeps a record of each wait that ended without a grant.",
		wrong: "the store grows with every wait in vain, until it is full",
		found: backends.FoundIn("in-vain", "leftovers", "leftovers 0: found"),
		flaws: flaws{leavesWaits: true},
	},
}

func firstPart(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

func crc32Of(name string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(name))), 16)
}

func fnv1aOf(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

func last64(name string) string { return name[max(0, len(name)-64):] }

// reentrant returns the scope of the lock's re-entry.
func (v variant) reentrant() string {
	switch {
	case v.flaws.admitsProcess:
		return "process"
	case v.reenters:
		return "user"
	}
	return "no"
}

func (v variant) lock() backends.Lock {
	token := backends.TokenService
	if v.flaws.lateFence {
		token = backends.TokenHomeMade
	}
	renewal, hung := "call", backends.Recovery(nil)
	if v.watchdog {
		renewal = "background"
		hung = backends.RecoversIn(func(ttl time.Duration) time.Duration {
			return (idleTTLs+1)*ttl + 250*time.Millisecond
		})
	}
	return backends.Lock{
		Name: v.name, Doc: v.doc, Wrong: v.wrong, Found: v.found, Hung: hung,
		Offers: backends.Offers{
			Blocking: true, Try: true, Renewal: renewal, LossSignal: !v.flaws.silent(), Token: token,
			Reentrant: v.reentrant(), Fair: !v.flaws.storms, Expires: true, Reenters: v.reenters, Permits: v.permits,
		},
		Points: []string{"before-acquire", "granted", "acquire-done", "before-free", "release-done"},
		MinTTL: 10 * time.Millisecond,
		Recovery: backends.RecoversIn(func(ttl time.Duration) time.Duration {
			return ttl + 250*time.Millisecond
		}),
		Dial: func(_ context.Context, a backends.Access) (backends.Connection, error) {
			if a.Run == "" {
				return nil, errors.New("memory: access names no run")
			}
			var p params
			if err := backends.DecodeParams(a.Params, &p); err != nil {
				return nil, err
			}
			return &connection{store: storeOf(a, v, p), watchdog: v.watchdog}, nil
		},
	}
}
