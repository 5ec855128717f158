package scenarios

import (
	"regexp"
	"slices"
	"strings"
)

var userForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,15}$`)

// order checks what steps say about each other: each name is defined once, and before its first use.
func (r stepsReader) order(steps []Step) error {
	var users, active, healed []string
	armed := map[string]string{} // user and point -> action
	for i, s := range steps {
		path := item("steps", i)
		spot := s.User + " " + s.Point
		switch {
		case s.Do == "arm":
			armed[spot] = s.Action
		case s.Do == "continue" && armed[spot] != "wait":
			return r.errorf(join(path, "point"),
				"user %s does not wait at %q: no earlier step armed it with action: wait",
				s.User, s.Point)
		case s.Await == "point" && armed[spot] == "":
			return r.errorf(join(path, "point"), "user %s never stops at %q: no earlier step armed it", s.User, s.Point)
		case s.Await != "" && s.User != "" && !slices.Contains(users, s.User):
			return r.errorf(join(path, "user"), "no earlier step has a user %s; %s", s.User, have(users))
		case s.As != "" && (slices.Contains(active, s.As) || slices.Contains(healed, s.As)):
			return r.errorf(join(path, "as"), "%q is taken: an earlier injection has this name", s.As)
		case s.Heal != "" && slices.Contains(healed, s.Heal):
			return r.errorf(join(path, "heal"), "%q is already healed", s.Heal)
		case s.Heal != "" && !slices.Contains(active, s.Heal):
			return r.errorf(join(path, "heal"), "no earlier step has the name %q (as); %s", s.Heal, have(active))
		case s.Of != "" && !slices.Contains(active, s.Of):
			return r.errorf(join(path, "of"), "no active injection has the name %q (as); %s", s.Of, have(active))
		}
		if s.Do != "" && !slices.Contains(users, s.User) {
			users = append(users, s.User)
		}
		if s.As != "" {
			active = append(active, s.As)
		}
		if s.Heal != "" {
			active = slices.DeleteFunc(active, func(x string) bool { return x == s.Heal })
			healed = append(healed, s.Heal)
		}
	}
	return nil
}

func have(names []string) string {
	if len(names) == 0 {
		return "there are none yet"
	}
	return "there are " + strings.Join(names, ", ")
}

// Users returns the users that steps name, in the order of their first command. Each user has a client of its own.
func (s Scenario) Users() []string {
	var out []string
	for _, step := range s.Steps {
		if step.Do != "" && !slices.Contains(out, step.User) {
			out = append(out, step.User)
		}
	}
	return out
}
