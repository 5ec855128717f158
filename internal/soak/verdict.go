package main

import (
	"errors"
	"fmt"
)

// verdict is an error unless every run of every chosen row was made and passed, and what is demanded of many together is met.
func (o options) verdict() error {
	bad, short, family := 0, 0, false
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	states, err := o.states(chosen)
	if err != nil {
		return err
	}
	for i, row := range chosen {
		state := states[i]
		family = family || row.Member != nil
		if state.done(row) < row.Count && (!row.Optional || state.Missing == "") {
			short++
		}
		for _, r := range state.Runs {
			if r.Verdict != string(passed) && row.takes(r) {
				bad++
			}
		}
	}
	if family {
		if err := o.demanded(); err != nil {
			return err
		}
	}
	if short > 0 {
		return fmt.Errorf("%d rows have fewer runs than they ask for; %s shows them", short, o.page)
	}
	if bad > 0 {
		return fmt.Errorf("%d runs did not pass; %s names them", bad, o.page)
	}
	return nil
}

// demanded is an error where something that is demanded of the family's runs together is not met, as far as there are any.
func (o options) demanded() error {
	states, err := o.states(o.rows)
	if err != nil {
		return err
	}
	for _, d := range demands {
		if p, _, _, _ := d.asked(o.rows, states); p.runs > 0 && !d.met(p) {
			return errors.New(d.answer(o.rows, states))
		}
	}
	return nil
}
