package postgres

import (
	"net"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/internal/node"
)

// maxConnections is what the server takes; each user of a client has a connection of its own.
const maxConnections = 500

// start brings a server up in the directory $1 and becomes it, with the rest of the arguments. Its users have the
// password in the file $2; "": they need none.
//
// The server refuses to run as root: in a container it becomes the user postgres. The local provider starts it as
// another user than root. A user of whom the machine has no name, which initdb wants, is called nobody in a user
// namespace of its own. The namespace for System V shared memory takes the server's segment with it when the server is
// killed, which nothing else would remove.
//
// All processes of a server inherit descriptor 9. A killed one leaves children behind for a moment, still attached to
// its data; the lock on the descriptor is free when the last of them is gone.
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

// secret is the text of the file with the password.
func secret(password string) string { return password + "\n" }

// command is the argv of a server that is reached at address.
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

// settings is what differs from the server's defaults.
func (p Params) settings(listen, port string) []string {
	seconds := func(d time.Duration) string { return strconv.Itoa(max(1, int(d/time.Second))) }
	return []string{
		"listen_addresses=" + listen,
		"port=" + port,
		"unix_socket_directories=",
		"max_connections=" + strconv.Itoa(maxConnections),
		"shared_buffers=32MB",
		"dynamic_shared_memory_type=mmap", // in the data directory, not in a place that a killed server leaves full
		"synchronous_commit=" + p.SynchronousCommit,
		"track_wal_io_timing=on", // see Syncs
		// A client that was cut off: probed after half the time, given up when it is over.
		"tcp_keepalives_idle=" + seconds(p.TCPTimeout/2),
		"tcp_keepalives_interval=" + seconds(p.TCPTimeout/8),
		"tcp_user_timeout=" + strconv.FormatInt(p.TCPTimeout.Milliseconds(), 10),
		// A session that waits for a lock reads nothing from its client: without this it would not see it die, and be
		// granted the lock after its death, if only for the moment until it answers.
		"client_connection_check_interval=1s",
		// An open transaction is how the row lock holds, however long.
		"idle_in_transaction_session_timeout=0",
		"log_checkpoints=off",
		"timezone=UTC",
		"log_timezone=UTC",
	}
}
