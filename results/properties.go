package results

// Property is something that a run shows of the lock and that is neither right nor wrong, such as "renews for hung
// users: yes". It does not change the verdict.
type Property struct {
	Name   string            `json:"name"`
	Answer string            `json:"answer"` // yes, no or unknown
	By     ExpectationResult `json:"by"`     // the count or measure that answers
}

// String returns the property with its answer, and why it is unknown.
func (p Property) String() string {
	text := p.Name + ": " + p.Answer
	if p.Answer == string(Unknown) && p.By.Reason != "" {
		text += " (" + p.By.Reason + ")"
	}
	return text
}
