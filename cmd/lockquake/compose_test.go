package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestComposeSaysWhatTheBackendsSay(t *testing.T) {
	want, err := composeFile(servedBackends()...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("docker-compose.yml is not what the backends say of their nodes; run make compose (-want +got):\n%s", d)
	}
}

func TestNetworksOfComposeDoNotMeet(t *testing.T) {
	seen := map[string]string{}
	for _, name := range servedBackends() {
		p, err := newByHand(name)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[p.network.String()]; other != "" {
			t.Errorf("%s and %s have the same network %v", name, other, p.network)
		}
		seen[p.network.String()] = name
	}
}
