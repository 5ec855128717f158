package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// alternatively stands between targets of which one is drawn from the seed for each injection: "leader or all".
const alternatively = " or "

// parseAlternatives reads targets of which one is drawn each time.
func parseAlternatives(text string, nodes []string) (Selector, error) {
	s := Selector{text: text}
	for one := range strings.SplitSeq(text, alternatively) {
		choice, err := parseSelector(strings.TrimSpace(one), strings.Split(one, ","), nodes, selectorWords)
		if err != nil {
			return Selector{}, err
		}
		if _, ok := choice.Holder(); ok {
			return Selector{}, fmt.Errorf("%s stands alone: it is found by its grant", choice.text)
		}
		s.choices = append(s.choices, choice)
	}
	return s, nil
}

// draw returns one of the alternatives, each as likely as the others; the selector itself where there are none.
func (s Selector) draw(random *rand.Rand) Selector {
	if len(s.choices) == 0 {
		return s
	}
	return s.choices[random.IntN(len(s.choices))]
}
