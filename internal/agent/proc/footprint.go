package proc

// Footprint is what processes have of the machine.
type Footprint struct {
	Memory      int64 `json:"memory"` // bytes that are in memory and of no file
	Descriptors int   `json:"descriptors"`
	Threads     int   `json:"threads"`
}
