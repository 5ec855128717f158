package zookeeper

import (
	"maps"
	"testing"
)

// TestConfigured compares a member's settings before and after it has written and joined the others.
func TestConfigured(t *testing.T) {
	const before = "clientPort=2181\ndataDirSize=67109480\ndataLogSize=67109480\ntickTime=200\nmembership: \nserver.1=10.0.0.1:2888:3888:participant\nversion=0\n"
	const after = "clientPort=2181\ndataDirSize=67157237\ndataLogSize=67157237\ntickTime=200\nmembership: \nserver.1=10.0.0.1:2888:3888:participant;0.0.0.0:2181\nversion=0\n"
	if a, b := configured(before), configured(after); !maps.Equal(a, b) || a["tickTime"] != "200" || a["server.1"] == "" {
		t.Errorf("%v before, %v after", a, b)
	}
	if maps.Equal(configured(before), configured("clientPort=2181\ntickTime=300\nserver.1=10.0.0.1:2888:3888:participant\nversion=0\n")) {
		t.Error("another tick time is not seen")
	}
}
