package results

// Origin says what made a file of many runs. Files of two origins can be put together where their hosts agree in
// SameMachine.
type Origin struct {
	Version string            `json:"version"` // of lockquake
	Command string            `json:"command"` // that makes it again
	Started string            `json:"started"` // RFC 3339
	Host    map[string]string `json:"host"`    // as Env.Host
}
