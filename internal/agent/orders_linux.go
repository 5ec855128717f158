package agent

// orders lists what the agent can do to a process, by name.
var orders = map[string]order{
	DoClock:      doClock,
	DoClocked:    doClocked,
	DoData:       doData,
	DoFilter:     doFilter,
	DoFiltered:   doFiltered,
	DoProbe:      doProbe,
	DoEngines:    doEngines,
	DoMeasure:    doMeasure,
	DoReadClocks: doReadClocks,
	DoSynced:     doSynced,
	DoSyncs:      doSyncs,
}
