package proc

// Footprint is the resource usage of processes.
type Footprint struct {
	Memory      int64 `json:"memory"` // resident anonymous memory in bytes
	Descriptors int   `json:"descriptors"`
	Threads     int   `json:"threads"`
}
