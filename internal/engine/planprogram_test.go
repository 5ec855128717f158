package engine

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/workloads/resource"
)

// withProgram returns a scenario whose clients are a program in its own folder.
func withProgram(t *testing.T, client, more string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"my_lock.py", "config.json", "target/classes/MyLock.class", "target/lib/redis.jar"} {
		file := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte("x"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer("CLIENT", "client: {dir: "+dir+", "+client+"}", "MORE", more).Replace(`name: fake
claim: a test
backend: {use: fake, ttl: 5s}
workload: {use: acquire-release, clients: 1, CLIENT MORE}
expect: {judged: ">=0"}
`)
}

func TestOwnProgramIsANode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ client, image, argv string }{
		{"run: [python3, -u, my_lock.py, --config, config.json, nothing]", "python", "python3 -u /there/my_lock.py --config /there/config.json nothing"},
		{"run: [java, -jar, my_lock.py]", "java", "java -jar /there/my_lock.py"},
		{"run: [node, my_lock.py]", "nodejs", "node /there/my_lock.py"},
		{"run: [java, -cp, 'target/classes:/opt/x.jar', MyLock, target]", "java", "java -cp /there:/opt/x.jar MyLock target"},
		{"run: [java, -cp, 'target/classes:target/lib/*:/opt/*', org.example.MyLock]", "java", "java -cp /there/classes:/there/lib/*:/opt/* org.example.MyLock"},
		{"run: [java, --class-path, target/lib/redis.jar, MyLock]", "java", "java --class-path /there/redis.jar MyLock"},
		{"run: [java, -cp, /opt/x.jar, -Xmx64m, org.example.MyLock]", "java", "java -cp /opt/x.jar -Xmx64m org.example.MyLock"},
		{"run: [python3, ./my_lock.py], image: 'python:3.12'", "python:3.12", "python3 /there/my_lock.py"},
		{"run: [/usr/bin/my-lock, x]", "client", "/usr/bin/my-lock x"},
		{"run: [python3.12, x]", "python", "python3.12 x"},
	} {
		p, err := Check((&testbed{t: t}).options(withProgram(t, c.client, "")))
		if err != nil {
			t.Errorf("%s: %v", c.client, err)
			continue
		}
		s := p.Specs[slices.IndexFunc(p.Specs, func(s node.Spec) bool { return s.Role == node.Client })]
		place := node.Place{}.Beside(s, "/there")
		if got := strings.Join(s.Command(place), " "); s.Image != c.image || got != c.argv || s.Named != strings.Contains(c.image, ":") {
			t.Errorf("%s: image %s, %s", c.client, s.Image, got)
		}
	}
}

// A program built from Go sources is copied alone, into an image that has nothing else.
func TestAProgramBuiltOfSources(t *testing.T) {
	t.Parallel()
	text := withProgram(t, "go: mine, with: [example.org/lib@v1.0.0, example.org/x=example.org/y@v1.2.0, example.org/z=./z]", "")
	o := (&testbed{t: t}).options(text)
	if _, err := Check(o); err == nil || !strings.Contains(err.Error(), "mine (lib@v1.0.0, x@v1.2.0, z@./z): it was not built") {
		t.Errorf("without a built program: %v", err)
	}
	o.Built = []string{"/cache/bin/mine"}
	p, err := Check(o)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Specs[slices.IndexFunc(p.Specs, func(s node.Spec) bool { return s.Role == node.Client })]
	place := node.Place{}.Beside(s, "/there")
	if got := strings.Join(s.Command(place), " "); s.Image != node.SelfProgram || s.Named || s.Folder != "/cache/bin" || got != "/there/mine" {
		t.Errorf("%s in image %s, of folder %s", got, s.Image, s.Folder)
	}
	if want := map[string]string{"example.org/lib": "v1.0.0", "example.org/x": "v1.2.0"}; !maps.Equal(p.Programs[0].Pins, want) {
		t.Errorf("its hello must name %v, want %v", p.Programs[0].Pins, want)
	}
}

// Programs take turns over the clients, and none may be left over.
func TestProgramsTakeTurns(t *testing.T) {
	t.Parallel()
	text := withProgram(t, "run: [python3, my_lock.py, one], beside: [{dir: /, run: [/usr/bin/my-lock, two]}]", "")
	o := (&testbed{t: t}).options(text)
	if _, err := Check(o); err == nil || !strings.Contains(err.Error(), "workload.client.beside: 2 programs alternate, but there are 1") {
		t.Errorf("one client: %v", err)
	}
	p, err := Check((&testbed{t: t}).options(strings.Replace(text, "clients: 1", "clients: 3", 1)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range p.Specs {
		if s.Role == node.Client {
			argv := s.Command(node.Place{}.Beside(s, "/there"))
			got = append(got, argv[len(argv)-1])
		}
	}
	if strings.Join(got, " ") != "one two one" || p.Programs.String() != "python3 my_lock.py one beside /usr/bin/my-lock two" {
		t.Errorf("the clients are %q, of %s", got, p.Programs)
	}
}

// A program whose hello names another version than the requested one proves nothing about the latter.
func TestAClientOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		module, version string
		verdict         results.Verdict
		want            string
	}{
		{"example.org/lib", "v1.0.0", results.Pass, ""},
		{"example.org/old", "v2.0.0", results.Pass, ""},
		{"example.org/lib", "v1.1.0", results.Unknown, "client-1 is not the requested program: its hello has example.org/lib v1.0.0, but v1.1.0 was requested"},
		{"example.org/other", "v1.1.0", results.Unknown, "its hello has example.org/other (not at all), but v1.1.0 was requested"},
	} {
		s := &testbed{t: t, tune: func(r *run) {
			r.plan.Programs = plan.Programs{{What: "mine", Pins: map[string]string{c.module: c.version}}}
		}}
		s.wantVerdict(s.run(t.Context(), scheduled()), c.verdict, c.want)
	}
}

func TestLimitsOfOwnPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ client, more, use, want string }{
		{"run: [python3, other.py]", "", "", "there is no file other.py in /"},
		{"run: [./other]", "", "", "workload.client.run: there is no file ./other in /"},
		{"run: [python3, my_lock.py], beside: [{dir: /, run: [./other]}]", "", "", "workload.client.beside[0].run: there is no file ./other in /"},
		{"run: [java, -cp, 'other:/opt/x.jar', MyLock]", "", "", "there is no file other:/opt/x.jar in /"},
		{"run: [python3, my_lock.py]", ", resource: {use: trio}", "", "workload.resource.use: a program of your own can only use the register, not trio"},
		{"run: [python3, my_lock.py]", ", shared: 0.5", "", "has no shared mode"},
		{"run: [python3, my_lock.py]", "", "memory", "workload.client: backend memory has no processes"},
		{"run: [python3, my_lock.py]", "", "fake, lock: none", "workload.client: lock none sends no requests"},
	} {
		text := withProgram(t, c.client, c.more)
		if c.use != "" {
			text = strings.Replace(text, "use: fake", "use: "+c.use, 1)
		}
		if _, err := Check((&testbed{t: t}).options(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: %v, want %q", c.client, c.more, err, c.want)
		}
	}
}

// A point that is never reached would make a story unknown after minutes. It is rejected when the client has said
// hello, before it is started.
func TestAPointThatTheClientDoesNotAnnounce(t *testing.T) {
	t.Parallel()
	started := false
	s := &testbed{t: t, scripts: map[string]script{"client-1": {starts: func(*fakeNode) error { started = true; return nil }}}}
	got := s.run(t.Context(), directed("{do: arm, user: A, point: of-another-lock, action: wait}", "{do: acquire, user: A}"))
	var wrong plan.UsageError
	if !errors.As(got.err, &wrong) || !strings.Contains(wrong.Text, "steps.0.point: fake does not announce it; it announces acquired, before-read, before-write, before-release, before-free, nowhere\n") {
		t.Errorf("the run ended with %v", got.err)
	}
	if started {
		t.Error("its client was started")
	}
}

// So is an order that the client does not support, and a demand about news that it does not have.
func TestUnannouncedPointsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		directed("{do: close, user: A}"):                                                                     "steps.0.do: fake takes no order close: it is not among the orders in its hello",
		directed("{do: acquire, user: A}", "{do: cancel, user: A}"):                                          "steps.1.do: fake takes no order cancel",
		directed("{do: acquire, user: A}", "{do: renew, user: A}"):                                           "steps.1.do: fake takes no order renew",
		strings.Replace(scheduled(), "timeout:", "renew: true, timeout:", 1):                                 "workload: fake cannot extend its grants: renew is not among the orders in its hello",
		strings.Replace(scheduled(), "timeout:", "check: signal, timeout:", 1):                               "workload.check: fake reports no losses",
		strings.Replace(directed("{do: acquire, user: A}"), "expect: {", `expect: {untold_losses: "0", `, 1): "expect.untold_losses: fake reports no losses",
	} {
		got := (&testbed{t: t}).run(t.Context(), text)
		var wrong plan.UsageError
		if !errors.As(got.err, &wrong) || !strings.Contains(wrong.Text, want) {
			t.Errorf("the run ended with %v, want %q", got.err, want)
		}
	}
}

// If a client's clock is not the one that its hello names, its holds would be moved apart and no longer overlap.
func TestAClientThatLiesAboutItsClock(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		time.Second: "later than its arrival: its clock is not the one in its hello", -time.Second: "before the start frame was sent: its clock is not the one in its hello",
	} {
		s := &testbed{t: t, ahead: func() int64 { return int64(ahead) }, lies: true}
		s.wantVerdict(s.run(t.Context(), scheduled()), results.Unknown, want)
	}
	synctest.Test(t, func(t *testing.T) {
		c := watch.NewClock("client-1", nil, nil)
		hello := wire.NewHello("fake", "test")
		hello.Now = clock.Now() + int64(watch.ClockRoom) // a runtime may read the clock in another way
		if _, err := c.Shared(hello); err != nil {
			t.Error(err)
		}
		hello.Now++
		if _, err := c.Shared(hello); err == nil || !strings.Contains(err.Error(), "client-1: hello: its now is ") {
			t.Errorf("a hello from the future: %v", err)
		}
	})
}

// A resource whose guard looks first and applies later has a point between the two.
func TestThePointOfAGuardThatLooksFirst(t *testing.T) {
	t.Parallel()
	text := directed("{do: arm, user: A, point: "+resource.PointTokenChecked+", action: wait}", "{do: acquire, user: A}")
	for guard, fails := range map[string]bool{"none": true, "check-then-write": false} {
		if got := (&testbed{t: t}).run(t.Context(), strings.Replace(text, "guard: none", "guard: "+guard, 1)); fails != (got.err != nil) {
			t.Errorf("guard %s: the run ended with %v", guard, got.err)
		}
	}
}

// A service that lockquake does not know needs a program that does.
func TestAServiceThatOnlyAProgramKnows(t *testing.T) {
	t.Parallel()
	for client, want := range map[string]string{
		"": "backend.client: is missing: backend external needs a client program of your own", ", client: {dir: /, run: [/usr/bin/my-lock]}": "",
		", min_ttl: 10s, client: {dir: /, run: [/usr/bin/my-lock]}": "backend.ttl: 5s is too short for external: its own lock needs at least 10s",
	} {
		text := strings.NewReplacer("use: fake, ttl: 5s", "use: external, ttl: 5s, endpoints: ['127.0.0.1:9']"+client).Replace(scheduled())
		o := (&testbed{t: t}).options(text)
		o.Catalog.Backends = append(o.Catalog.Backends, external.Backend())
		if _, err := Check(o); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", client, err, want)
		}
	}
}
