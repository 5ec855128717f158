package cli

// release is the number of this version. CHANGELOG.md says what is in it.
const release = "0.1.0"

// commit is set by the build: the commit that was built, with "-dirty" if files differed from it. A build by `go
// install` does not set it.
var commit string

// Version is the version that a run records for the program that made it.
var Version = versionOf(commit)

func versionOf(commit string) string {
	if commit == "" {
		return release
	}
	return release + " (" + commit + ")"
}
