package main

// Row is one line of the track record: a scenario, run Count times on one provider.
type Row struct {
	Scenario string
	File     string // of the scenario, within scenarios/; a twin lives in its story's file
	Backend  string
	Provider string
	Count    int
	Shows    string // what each run has to show to count; the scenario's own expectations, in words
}

// rows is what is claimed of this program and takes hours to show.
var rows = []Row{
	{
		Scenario: "etcd-holder-pause", File: "stories/etcd-holder-pause.yaml", Backend: "etcd", Provider: "docker", Count: 20,
		Shows: "overlapping holds and stale writes, no double grant",
	},
	{
		Scenario: "etcd-holder-pause-fenced", File: "stories/etcd-holder-pause.yaml", Backend: "etcd", Provider: "docker", Count: 20,
		Shows: "overlapping holds and fence saves, no stale write, no double grant",
	},
	{
		Scenario: "redis-restart-amnesia", File: "stories/redis-restart-amnesia.yaml", Backend: "redis", Provider: "docker", Count: 20,
		Shows: "a double grant",
	},
	{
		Scenario: "etcd-healthy", File: "healthy/etcd-healthy.yaml", Backend: "etcd", Provider: "docker", Count: 20,
		Shows: "nothing at all",
	},
	{
		Scenario: "redis-healthy", File: "healthy/redis-healthy.yaml", Backend: "redis", Provider: "docker", Count: 20,
		Shows: "nothing at all",
	},
	{
		Scenario: "redis-holder-pause", File: "stories/redis-holder-pause.yaml", Backend: "redis", Provider: "docker", Count: 5,
		Shows: "overlapping holds and stale writes, no double grant",
	},
}

// ID names the row among all rows and in the folder of states.
func (r Row) ID() string { return r.Scenario + "@" + r.Provider }

// Paths are what the row's figures depend on, relative to the top of the tree. While the files below them stay as they
// are, figures that were taken once are kept. Tests, pages and the drawing of reports change no figure.
func (r Row) Paths() []string {
	return []string{
		"go.mod", "lock", "history", "chaos", "workloads", "images",
		"internal/agent", "internal/client", "internal/clock", "internal/cluster", "internal/engine", "internal/seed",
		"internal/wire",
		"results/*.go", "scenarios/*.go", "scenarios/" + r.File,
		"backends/*.go", "backends/" + r.Backend,
	}
}
