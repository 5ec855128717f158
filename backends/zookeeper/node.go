package zookeeper

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/internal/node"
)

// The jars are those of Debian's libzookeeper-java, whose manifest names its dependencies, and slf4j's logger for
// standard error.
const (
	classPath = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
	mainClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
)

// jvm keeps a server small and quick to start, and avoids the performance data file in /tmp.
var jvm = []string{
	"-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError",
	"-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
	"-Dorg.slf4j.simpleLogger.showDateTime=true",
	"-Dzookeeper.jmx.log4j.disable=true",
	// These two would warn about each client that does not know read-only servers, and about each that hangs up.
	"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.ZooKeeperServer=error",
	"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=error",
}

func name(i int) string { return "zookeeper-" + strconv.Itoa(i+1) }

// seat is a server's place in the ensemble.
type seat struct {
	number  int // from 1: its id
	members int
	dir     string
	address func(node, port string) string
}

// command returns the argv of one server. The shell writes its two files and then execs the JVM, so that a signal to
// the process is a signal to the server.
func (p Params) command(s seat) []string {
	const script = `set -e
mkdir -p "$1/data"
printf '%s' "$2" >"$1/zoo.cfg"
printf '%s' "$3" >"$1/data/myid"
[ -r /usr/share/java/zookeeper.jar ] || { echo "zookeeper: there is no /usr/share/java/zookeeper.jar; install Debian's libzookeeper-java" >&2; exit 127; }
cfg=$1/zoo.cfg
shift 3
exec java "$@" "$cfg"`
	argv := []string{"sh", "-c", script, "zookeeper", s.dir, p.config(s), strconv.Itoa(s.number)}
	argv = append(argv, jvm...)
	return append(argv, "-cp", classPath, mainClass)
}

// config returns the server's zoo.cfg. It listens for clients where ListenOn says, and for the other servers on the
// address that the run gave it. An unknown key becomes the system property zookeeper.KEY.
func (p Params) config(s seat) string {
	own := name(s.number - 1)
	host, clientPort, err := net.SplitHostPort(s.address(own, Port))
	if err != nil {
		clientPort = "2181" // ZooKeeper's default
	}
	lines := []string{
		"dataDir=" + s.dir + "/data",
		"clientPort=" + clientPort,
		"clientPortAddress=" + node.ListenOn(host),
		fmt.Sprintf("tickTime=%d", p.TickTime.Milliseconds()),
		fmt.Sprintf("minSessionTimeout=%d", p.MinSession.Milliseconds()),
		fmt.Sprintf("maxSessionTimeout=%d", p.MaxSession.Milliseconds()),
		"initLimit=10", // ticks in which a follower must connect to a new leader and catch up
		fmt.Sprintf("syncLimit=%d", p.SyncLimit),
		fmt.Sprintf("cnxTimeout=%d", p.CnxTimeout.Milliseconds()),
		// A server alone in an election asks again after 200 ms, then twice that, and so on up to this; ZooKeeper's
		// own bound is a minute.
		"fastleader.maxNotificationInterval=1000",
		"maxClientCnxns=0", // no limit: all clients of a run may come from one address
		"4lw.commands.whitelist=*",
		"admin.enableServer=false",
		// Allows a leader to step down gracefully; see Promote.
		"reconfigEnabled=true",
		"DigestAuthenticationProvider.superDigest=" + adminDigest(),
		"forceSync=" + map[bool]string{false: "yes", true: "no"}[p.NoFsync],
	}
	for i := range s.members {
		host, peer, _ := net.SplitHostPort(s.address(name(i), peerPort))
		_, election, _ := net.SplitHostPort(s.address(name(i), electionPort))
		lines = append(lines, fmt.Sprintf("server.%d=%s:%s:%s", i+1, host, peer, election))
	}
	return strings.Join(lines, "\n") + "\n"
}
