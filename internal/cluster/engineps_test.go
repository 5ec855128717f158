package cluster

import (
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/lockquake/lockquake/chaos"
)

func TestThreadStatesOfTheEnginesPs(t *testing.T) {
	rows := [][]string{{"7", "7", "Tsl"}, {"7", "9", "Tl"}, {"8", "8", "S"}, {"7"}}
	s, err := threadStates(7, []string{"PID", "LWP", "STAT"}, rows)
	if err != nil || !s.Stopped() || s.Threads["T"] != 2 {
		t.Errorf("stopped: %v, %v", s, err)
	}
	if s, err := threadStates(9, []string{"PID", "LWP", "STAT"}, rows); err != nil || !s.Gone() {
		t.Errorf("absent: %v, %v", s, err)
	}
	if _, err := threadStates(7, []string{"PID", "CMD"}, rows); err == nil {
		t.Error("a table without states was read")
	}
}

func TestGoneAndStoppedAreExact(t *testing.T) {
	mixed := chaos.ProcessState{PID: 5, Threads: map[string]int{"T": 3, "S": 1}}
	if mixed.Stopped() || mixed.Gone() {
		t.Error("one running thread is not stopped")
	}
}

func TestAnAgentInAnotherPIDNamespaceIsRefused(t *testing.T) {
	if err := samePID(4711, &container.State{Pid: 4711}); err != nil {
		t.Error(err)
	}
	for _, engine := range []*container.State{nil, {}, {Pid: 1}} {
		if err := samePID(4711, engine); err == nil {
			t.Errorf("the engine says %+v, and the agent was taken", engine)
		}
	}
}
