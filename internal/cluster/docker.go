package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/node"
)

// DockerOptions are the options of nodes in containers.
type DockerOptions struct {
	// Self is lockquake's own binary as a static Linux build; "" means LOCKQUAKE_BIN, else the running program.
	Self string
	Log  *slog.Logger // may be nil
	// Mechanisms are asked what is possible here, if containers run on this kernel.
	Mechanisms agent.Mechanisms

	// Behaviour for other engines, which this package's tests force on the current one.
	published bool // dial published ports even if the engine's networks are reachable
	noAgent   bool // signal through the engine even if an agent could be started
}

// docker is the provider of containers.
type docker struct {
	options DockerOptions
	log     *slog.Logger
	tc      *testcontainers.DockerProvider
	api     client.APIClient
	version client.ServerVersionResult

	canClock func() error                  // why clocks cannot be moved on the engine's machine; asked once
	shapers  func() (links.Engines, error) // asked once

	// lend makes another engine copy a missing image to this one, and reports whether it had the image. nil if there is
	// no other engine.
	lend func(ctx context.Context, ref string) (bool, error)

	preloads struct { // libraries found in images
		sync.Mutex
		of map[string]string
	}
}

// engineTimeout bounds the first requests to the engine, which may hang.
const engineTimeout = 10 * time.Second

// NewDocker connects to the container engine that the environment names (DOCKER_HOST, or the usual sockets). It returns
// a chaos.Unavailable if none answers.
func NewDocker(o DockerOptions) (Provider, error) {
	d, err := newDocker(o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func newDocker(o DockerOptions) (*docker, error) {
	type result struct {
		d   *docker
		err error
	}
	answer := make(chan result, 1)
	go func() {
		d, err := connectEngine(o)
		answer <- result{d, err}
	}()
	select {
	case r := <-answer:
		return r.d, r.err
	case <-time.After(engineTimeout):
		return nil, noEngine(fmt.Errorf("no answer within %v", engineTimeout))
	}
}

func noEngine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return chaos.Unavailable{What: "the docker provider", Reason: "no container engine answers (" + text +
		"); start one or set DOCKER_HOST, or run with --provider local"}
}

func connectEngine(o DockerOptions) (*docker, error) {
	quietTestcontainers()
	if err := answersByName(); err != nil {
		return nil, noEngine(err)
	}
	d, err := speak(o, useOwnConnections)
	if err != nil {
		return nil, noEngine(err)
	}
	return d, nil
}

// speak returns a provider whose engine connections are set up by use.
func speak(o DockerOptions, use func(context.Context, *testcontainers.DockerProvider) error) (*docker, error) {
	p, err := testcontainers.ProviderDefault.GetProvider(testcontainers.WithLogger(tclog.NewNoopLogger()))
	if err != nil {
		return nil, err
	}
	tc, ok := p.(*testcontainers.DockerProvider)
	if !ok {
		return nil, fmt.Errorf("testcontainers gave a provider of type %T", p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	if err := use(ctx, tc); err != nil {
		return nil, err
	}
	d := &docker{options: o, log: o.Log, tc: tc, api: tc.Client()}
	d.canClock, d.shapers = sync.OnceValue(d.askClock), sync.OnceValues(d.askEngines)
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.version, err = d.api.ServerVersion(ctx, client.ServerVersionOptions{}); err != nil {
		return nil, err
	}
	if d.version.Os != "linux" {
		return nil, fmt.Errorf("it runs %s containers", d.version.Os)
	}
	return d, nil
}

// answersByName checks that the engine in DOCKER_HOST, if any, answers: testcontainers would silently use another one
// instead.
func answersByName() error {
	if os.Getenv(client.EnvOverrideHost) == "" {
		return nil
	}
	api, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	_, err = api.Ping(ctx, client.PingOptions{})
	return err
}

// quietTestcontainers sets what testcontainers reads at its first use, if it is unset. The reaper is off, because its
// image cannot be pulled everywhere and Sweep does its work. So is the guess of the engine's address from inside a
// container, which can hang.
func quietTestcontainers() {
	tclog.SetDefault(tclog.NewNoopLogger())
	setDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
	if host := os.Getenv("DOCKER_HOST"); host == "" || strings.HasPrefix(host, "unix:") {
		setDefault("TESTCONTAINERS_HOST_OVERRIDE", "localhost")
	}
}

func setDefault(key, value string) {
	if _, set := os.LookupEnv(key); !set {
		_ = os.Setenv(key, value)
	}
}

// Name returns "docker".
func (d *docker) Name() string { return "docker" }

// Offers reports what can be done to a container's process. All of it also works through the engine alone, if the agent
// does not start.
func (d *docker) Offers(c chaos.Capability, r node.Role) error {
	if c == CanAlike { // the first process of each container has pid 1
		return nil
	}
	if c == CanLimit || c == process.CanLimitCPU {
		_, err := d.limits()
		return err
	}
	if c == wall.CanClock {
		return d.canClock()
	}
	if slices.Contains(shapings, c) {
		e, err := d.shapers()
		if err != nil {
			return chaos.Unavailable{What: string(c), Reason: err.Error()}
		}
		return offersShaping(c, e)
	}
	if c == disk.CanCutPower && r == node.Server {
		return disksAt(d.api.DaemonHost())
	}
	return offers(c, r)
}

// limits returns how the engine limits containers, or why it cannot.
func (d *docker) limits() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	answer, err := d.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return "", fmt.Errorf("ask the engine for its limits: %w", err)
	}
	i := answer.Info
	if !i.CPUCfsQuota || !i.MemoryLimit {
		return "", chaos.Unavailable{What: limits.Unlimited, Reason: fmt.Sprintf(
			"the engine's kernel lacks them (CPU quota %t, memory limit %t); omit cpus and memory", i.CPUCfsQuota,
			i.MemoryLimit)}
	}
	return fmt.Sprintf("the engine has %d processors and limits CPU time and memory by control groups of version %s",
		i.NCPU, i.CgroupVersion), nil
}

// Engined is a provider with a container engine.
type Engined interface {
	// EngineID identifies the engine and its kernel.
	EngineID(ctx context.Context) (string, error)
}

// EngineID returns the engine's own id, its version and its kernel's.
func (d *docker) EngineID(ctx context.Context) (string, error) {
	answer, err := d.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return "", fmt.Errorf("identify the engine: %w", err)
	}
	return strings.Join([]string{answer.Info.ID, answer.Info.ServerVersion, answer.Info.KernelVersion}, " "), nil
}

// Open makes the network and the containers, which are not yet started.
func (d *docker) Open(ctx context.Context, r Request) (*Cluster, error) {
	r, err := r.checked()
	if err != nil {
		return nil, err
	}
	run := d.newRun(r)
	c := &Cluster{close: run.close, Describe: map[string]string{
		"provider": "docker", "engine": d.version.Version, "engine_api": d.api.ClientVersion(),
		"engine_host": d.api.DaemonHost(),
	}}
	if r.Reuse {
		c.keeper = run
	}
	if err := run.open(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// newRun returns an empty run.
func (d *docker) newRun(r Request) *dockerRun {
	return &dockerRun{
		engine: d, agentUp: make(chan struct{}), agentName: "agent", request: r,
		owner: owner.Self(r.Run, r.Keep), password: rand.Text(),
	}
}

// useOwnConnections makes a testcontainers provider use a new connection to its engine for each request. testcontainers
// closes idle connections at the end of each call. If connections were kept alive, that could hit one that another
// goroutine has just taken: the start of a container then fails with "http: CloseIdleConnections called". It also
// leaves no idle connections behind.
func useOwnConnections(ctx context.Context, p *testcontainers.DockerProvider) error {
	options := []client.Opt{
		client.WithHTTPClient(&http.Client{Transport: ownTransport(), CheckRedirect: client.CheckRedirect}),
		client.FromEnv, // for its certificates: those that testcontainers found are lost with the earlier client
	}
	if c := testcontainers.ReadConfig().Config; c.TLSVerify == 1 {
		options = append(options, client.WithTLSClientConfig(
			filepath.Join(c.CertPath, "ca.pem"), filepath.Join(c.CertPath, "cert.pem"),
			filepath.Join(c.CertPath, "key.pem")))
	}
	return useClient(ctx, p, append(options, client.WithHost(p.Client().DaemonHost()))...)
}

// ownTransport returns a transport with a new connection for each request.
func ownTransport() *http.Transport {
	var protocols http.Protocols
	// with HTTP/2 a transport creates a TLS configuration, and the client then takes every engine for one behind TLS
	protocols.SetHTTP1(true)
	return &http.Transport{DisableKeepAlives: true, Protocols: &protocols}
}

// useClient makes a testcontainers provider use another client.
func useClient(ctx context.Context, p *testcontainers.DockerProvider, options ...client.Opt) error {
	before := p.Client()
	own, err := testcontainers.NewDockerClientWithOpts(ctx, options...)
	if err != nil {
		return err
	}
	p.SetClient(own)
	return before.Close()
}

// askClock returns why clocks cannot be moved on the containers' kernel; nil if they can.
func (d *docker) askClock() error {
	if d.ourKernel() {
		return noClock(d.options.Mechanisms.Supports(wall.DoClock))
	}
	return noClock(d.agentSupports(wall.DoClock))
}

// ourKernel reports whether the engine appears to run on the same kernel as this process. Then its processes get what
// we get.
func (d *docker) ourKernel() bool {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || remote(d.api.DaemonHost()) || d.version.Arch != runtime.GOARCH {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	info, err := d.api.Info(ctx, client.InfoOptions{})
	return err == nil && info.Info.KernelVersion+"\n" == string(release)
}

// Imager is a provider whose nodes are made from images.
type Imager interface {
	// HasImage returns nil if the project's own image of that key exists, or if Open makes it; else a chaos.Unavailable
	// that says how to get it.
	HasImage(key string) error
}

// store returns the image store of the engine.
func (d *docker) store() imagestore.Store {
	return imagestore.Store{API: d.api, Self: d.options.Self, Log: d.log, Lend: d.lend}
}

// HasImage asks the engine.
func (d *docker) HasImage(key string) error {
	if key == node.SelfProgram {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	return d.store().HasProject(ctx, key)
}

// SelfImage makes the image of lockquake's own binary if the engine does not have it, tags it as ContainerImage, and
// returns that name.
func SelfImage(ctx context.Context) (string, error) {
	d, err := newDocker(DockerOptions{})
	if err != nil {
		return "", err
	}
	made, err := d.store().EnsureSelf(ctx)
	if err != nil {
		return "", err
	}
	ref := ContainerImage(node.SelfProgram)
	if _, err := d.api.ImageTag(ctx, client.ImageTagOptions{Source: made, Target: ref}); err != nil {
		return "", fmt.Errorf("name image %s %s: %w", made, ref, err)
	}
	return ref, nil
}
