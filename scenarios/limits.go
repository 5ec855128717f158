package scenarios

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// Limits bounds the machine resources of each node of one kind. Zero means unlimited.
type Limits struct {
	CPUs   float64 `yaml:"cpus"`   // processor time; 0.5 is half a processor
	Memory Size    `yaml:"memory"` // bytes, swap included
}

// Size is a number of bytes, written with a binary unit such as 256MiB.
type Size int64

// The lowest limits that container engines accept, and the highest that lockquake accepts.
const (
	minCPUs, maxCPUs     = 0.01, 1024.0
	minMemory, maxMemory = 6 << 20, 1 << 40
)

var (
	sizeType  = reflect.TypeFor[Size]()
	sizeForm  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(KiB|MiB|GiB)$`)
	sizeUnits = map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

// String writes the size with the largest unit that gives a whole number.
func (s Size) String() string {
	for _, u := range []struct {
		name string
		size Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// UnmarshalYAML reads a size as scenarios write it.
func (s *Size) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err != nil {
		return err
	}
	size, ok := parseSize(text)
	if !ok {
		return fmt.Errorf("%q is not an amount of memory", text)
	}
	*s = size
	return nil
}

func parseSize(text string) (Size, bool) {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if n *= sizeUnits[m[2]]; err != nil || n > maxMemory {
		n = maxMemory + 1 // above the maximum, so that it is rejected
	}
	return Size(n), true
}

func checkSize(src *source, n ast.Node, path string) error {
	text, ok := textOf(n)
	if !ok {
		if t := n.Type(); t == ast.IntegerType || t == ast.FloatType {
			s := shown(n)
			return src.at(tokenOf(n), path, "%s has no unit: write %sKiB, %sMiB or %sGiB", s, s, s, s)
		}
		return src.at(tokenOf(n), path, "%s is not an amount of memory, such as 256MiB", shown(n))
	}
	if _, ok := parseSize(text); !ok {
		return src.at(tokenOf(n), path, "%q is not an amount of memory: a number and a unit (KiB, MiB, GiB), such as 256MiB", text)
	}
	return nil
}

// limits validates the limits of a section.
func (r reader) limits(m *ast.MappingNode, path string, l Limits) error {
	if entry(m, "cpus") != nil && (l.CPUs < minCPUs || l.CPUs > maxCPUs) {
		return r.errorf(path+".cpus", "%g is out of range: %g to %g processors' worth of time", l.CPUs, minCPUs,
			maxCPUs)
	}
	if v := entry(m, "memory"); v != nil && (l.Memory < minMemory || l.Memory > maxMemory) {
		return r.errorf(path+".memory", "%s is out of range: %s to %s", shown(v.Value), Size(minMemory),
			Size(maxMemory))
	}
	return nil
}
