package scenarios

import "testing"

func TestLimitsOfServersAndClients(t *testing.T) {
	s, err := Parse([]byte(`name: limited
claim: Each kind of node has its own limits.
backend: {use: redis, cpus: 0.5, memory: 256MiB, persistence: none}
workload: {use: counter, cpus: 2, memory: 1.5GiB, hold: 1ms}
`), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Limits{CPUs: 0.5, Memory: 256 << 20}); s.Backend.Limits != want {
		t.Errorf("servers have %+v, want %+v", s.Backend.Limits, want)
	}
	if want := (Limits{CPUs: 2, Memory: 1536 << 20}); s.Workload.Limits != want {
		t.Errorf("clients have %+v, want %+v", s.Workload.Limits, want)
	}
	if keys := append(s.Backend.Params.Keys(), s.Workload.Params.Keys()...); len(keys) != 2 {
		t.Errorf("limits are no keys of the instance: %v", keys)
	}
	s, err = s.With([]string{"backend.cpus=0.25", "workload.memory=64MiB"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Backend.Limits.CPUs != 0.25 || s.Workload.Limits.Memory != 64<<20 {
		t.Errorf("set: servers %+v, clients %+v", s.Backend.Limits, s.Workload.Limits)
	}
	again, err := Parse(s.Text, "written")
	if err != nil {
		t.Fatal(err)
	}
	if again.Backend.Limits != s.Backend.Limits || again.Workload.Limits != s.Workload.Limits {
		t.Errorf("read back from the run directory: %+v and %+v", again.Backend.Limits, again.Workload.Limits)
	}
}

func TestSizesAreWrittenAsTheyAreRead(t *testing.T) {
	for text, want := range map[string]Size{"256MiB": 256 << 20, "1GiB": 1 << 30, "6144KiB": 6 << 20, "1.5GiB": 1536 << 20} {
		got, ok := parseSize(text)
		if !ok || got != want {
			t.Errorf("%s is read as %d, %t", text, got, ok)
		}
		if back, ok := parseSize(got.String()); !ok || back != want {
			t.Errorf("%s is written as %s", text, got)
		}
	}
}
