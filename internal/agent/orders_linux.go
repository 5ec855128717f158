package agent

// orders lists what the agent can do to a process, by name.
var orders = map[string]order{
	DoAround:     doAround,
	DoClock:      doClock,
	DoClocked:    doClocked,
	DoCut:        doCut,
	DoData:       doData,
	DoDisk:       doDisk,
	DoFreeze:     doFreeze,
	DoFrozen:     doFrozen,
	DoFilter:     doFilter,
	DoFiltered:   doFiltered,
	DoLook:       doLook,
	DoMark:       doMark,
	DoProbe:      doProbe,
	DoEngines:    doEngines,
	DoMeasure:    doMeasure,
	DoReadClocks: doReadClocks,
	DoSynced:     doSynced,
	DoSyncs:      doSyncs,
}

// machinery are the orders that are about the machine, and need no process.
var machinery = map[string]bool{DoDisk: true, DoMark: true, DoLook: true}
