package results

// Origin says how a file of many runs was made. Files of two origins can be merged if their hosts agree in
// SameMachine.
type Origin struct {
	Version string            `json:"version"` // of lockquake
	Command string            `json:"command"` // that makes the file again
	Started string            `json:"started"` // RFC 3339
	Host    map[string]string `json:"host"`    // as Env.Host
}
