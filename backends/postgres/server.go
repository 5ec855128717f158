package postgres

import (
	"net"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/internal/node"
)

// maxConnections is the server's limit; each user of a client has its own connection.
const maxConnections = 500

// start starts a server in the directory $1 with the remaining arguments, and execs into it. Its users have the
// password in the file $2; "": they need none.
//
// The server refuses to run as root: in a container it becomes the user postgres. The local provider starts it as a
// user other than root. initdb wants a user name, so a user without one is called nobody, in its own user namespace.
// An IPC namespace removes the server's System V shared memory segment when the server is killed; nothing else would.
//
// All processes of a server inherit descriptor 9. A killed server leaves children behind for a moment that are still
// attached to its data. The lock on the descriptor is free once the last of them has ended.
const start = `set -eu
cd "$1"; secret=$2; shift 2
umask 077
for d in /usr/lib/postgresql/*/bin; do PATH=$d:$PATH; done
command -v postgres >/dev/null || { echo "there is no postgres on PATH nor in /usr/lib/postgresql: apt-get install postgresql" >&2; exit 127; }
auth=trust; ask=
[ -z "$secret" ] || { auth=scram-sha-256; ask=--pwfile=password; cp "$secret" password; }
as=
if [ "$(id -u)" = 0 ]; then
  as="setpriv --reuid=postgres --regid=postgres --init-groups"
  chown -R postgres: .
else
  named="unshare --user --map-current-user --ipc"
  getent passwd "$(id -u)" >/dev/null || named="unshare --user --map-user=$(id -u nobody) --map-group=$(id -g nobody) --ipc"
  ! $named true 2>/dev/null || as=$named
fi
exec 9>lock
flock 9
if [ ! -s data/PG_VERSION ]; then
  $as initdb -D data -U lockquake -A $auth $ask -E UTF8 --no-locale --no-instructions >&2
  echo "host all all all $auth" >>data/pg_hba.conf
  sync data/pg_hba.conf # initdb syncs what it makes
fi
rm -f password
# A process that changes who it is no longer dies with its parent, unless it asks for that again.
[ $$ = 1 ] || ! command -v setpriv >/dev/null || as="$as setpriv --pdeathsig KILL"
exec $as postgres -D data "$@"
`

// secret returns the content of the password file.
func secret(password string) string { return password + "\n" }

// command returns the argv of a server that is reached at address.
func (p Params) command(place node.Place, address string) []string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		port = "5432" // the server's own default
	}
	argv := []string{"sh", "-c", start, "postgres", place.Dir, place.Secret}
	for _, s := range p.settings(node.ListenOn(host), port) {
		argv = append(argv, "-c", s)
	}
	return argv
}

// settings returns the settings that differ from the server's defaults.
func (p Params) settings(listen, port string) []string {
	seconds := func(d time.Duration) string { return strconv.Itoa(max(1, int(d/time.Second))) }
	return []string{
		"listen_addresses=" + listen,
		"port=" + port,
		"unix_socket_directories=",
		"max_connections=" + strconv.Itoa(maxConnections),
		"shared_buffers=32MB",
		"dynamic_shared_memory_type=mmap", // in the data directory, because a killed server would leave other places full
		"synchronous_commit=" + p.SynchronousCommit,
		"track_wal_io_timing=on", // see Syncs
		// A client that was cut off is probed after half the time and dropped after all of it.
		"tcp_keepalives_idle=" + seconds(p.TCPTimeout/2),
		"tcp_keepalives_interval=" + seconds(p.TCPTimeout/8),
		"tcp_user_timeout=" + strconv.FormatInt(p.TCPTimeout.Milliseconds(), 10),
		// A session that waits for a lock reads nothing from its client. Without this it would not notice the
		// client's death, and would be granted the lock after it, if only until it answers.
		"client_connection_check_interval=1s",
		// The row lock is held by an open transaction, however long.
		"idle_in_transaction_session_timeout=0",
		"log_checkpoints=off",
		"timezone=UTC",
		"log_timezone=UTC",
	}
}
