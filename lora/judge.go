package lora

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Evidence is what shows that a base is the one that an adapter was trained on.
type Evidence string

const (
	ByHubID       Evidence = "hub id"      // the adapter names the hub id that the base carries
	ByFingerprint Evidence = "fingerprint" // a person gave the base's fingerprint
	ByLineage     Evidence = "lineage"     // the base is recorded, by content, as the output of the stage before
	ByChain       Evidence = "chain"       // a person gave the adapter right after the stage that makes its base
	ByNothing     Evidence = "none"        // a person accepted the mismatch
)

// JudgeOptions is what a person says about the base.
type JudgeOptions struct {
	Fingerprint    string // of the base that the first adapter was trained on; "" is no statement
	AcceptMismatch bool   // merge although nothing shows that the base is the right one
}

// Judgement is why one stage may be merged.
type Judgement struct {
	Evidence    Evidence
	Explanation string
	Mismatch    bool // accepted
	// content tells whether the evidence holds only if the base's weights are those that a fingerprint names; that is
	// known when they have been read.
	content string
}

// MismatchError is the refusal to merge an adapter into a base that nothing shows to be its own.
type MismatchError struct {
	Stage   int    // counted from 1
	Adapter string // path
	message string
}

func (e *MismatchError) Error() string { return e.message }

// Judge decides for each stage whether its base is shown to be the one that the adapter was trained on. The error is a
// *MismatchError when for one of them it is not. It looks at names and records only; where the evidence is about
// content, Merge compares the fingerprint that it finds and refuses before anything is written under the final name.
func (p *Plan) Judge(ctx context.Context, o JudgeOptions) ([]Judgement, error) {
	var list []Judgement
	for i := range p.Stages {
		j, err := p.judgeStage(ctx, i, o)
		if err != nil {
			return nil, err
		}
		list = append(list, j)
	}
	return list, nil
}

func (p *Plan) judgeStage(ctx context.Context, i int, o JudgeOptions) (Judgement, error) {
	j, why := p.evidence(i, o)
	if names := p.contradictions[i+1]; len(names) > 0 && j.Evidence != ByNothing {
		why = fmt.Sprintf("the adapter holds a copy of %s of its base, and this base's is another one", strings.Join(names, ", "))
		j = Judgement{Evidence: ByNothing}
	}
	if j.Evidence != ByNothing {
		return j, nil
	}
	if o.AcceptMismatch {
		return Judgement{Evidence: ByNothing, Mismatch: true, Explanation: "base mismatch accepted: " + why}, nil
	}
	is, err := p.Base.Fingerprint(ctx)
	if err != nil {
		return j, err
	}
	return j, &MismatchError{Stage: i + 1, Adapter: p.Stages[i].Adapter.Path, message: p.refusal(i, why, is)}
}

// evidence looks for what shows that stage i's base is right; else it says why nothing does.
func (p *Plan) evidence(i int, o JudgeOptions) (Judgement, string) {
	named := p.Stages[i].Adapter.Config.BaseModel
	if i > 0 {
		return p.chainEvidence(i, named)
	}
	if o.Fingerprint != "" {
		return Judgement{Evidence: ByFingerprint, content: o.Fingerprint, Explanation: "the fingerprint given for the base"}, ""
	}
	if l := p.Base.Origin.Lineage; l != nil {
		return lineageEvidence(l, named)
	}
	nothing := Judgement{Evidence: ByNothing}
	if !isHubID(named) {
		return nothing, fmt.Sprintf("it was trained on %s, which is no hub id but a name on the machine of the training", quoted(named))
	}
	for _, claim := range p.Base.Origin.Claims {
		if strings.EqualFold(claim.ID, named) {
			return Judgement{Evidence: ByHubID, Explanation: fmt.Sprintf("the adapter names %s, and so does %s", named, claim.Where)}, ""
		}
	}
	return nothing, fmt.Sprintf("it was trained on %s, and the base %s", named, p.baseIdentity())
}

// lineageEvidence is for a base that is a recorded merge. Such a base is to what is recorded in it as the stages before
// an adapter are to it in a chain, so the rules are the same: an adapter that was trained on an intermediate of the
// training machine may go on it, and one that names the base of a recorded stage, or any hub id, may not. An adapter
// that names the output as the record does is beyond doubt.
func lineageEvidence(l *Lineage, named string) (Judgement, string) {
	recorded := fmt.Sprintf("%s, the merge of %s into %s", l.Output.Name, adapterNames(l), rootName(l))
	if named != "" && (named == l.Output.Name || path.Base(named) == path.Base(l.Output.Name)) {
		return Judgement{Evidence: ByLineage, content: l.Output.Fingerprint, Explanation: "the base is recorded as " + recorded}, ""
	}
	why := fmt.Sprintf("it was trained on %s, and the base is recorded as %s", quoted(named), recorded)
	trainedBeside := slices.ContainsFunc(l.Stages, func(s StageRecord) bool { return strings.EqualFold(s.TrainedOn, named) })
	if named == "" || isHubID(named) || trainedBeside || l.Mismatched() {
		return Judgement{Evidence: ByNothing}, why
	}
	return Judgement{Evidence: ByLineage, content: l.Output.Fingerprint,
		Explanation: fmt.Sprintf("the adapter names a private intermediate, %s, and the base is recorded as one: %s", named, recorded)}, ""
}

// chainEvidence is for an adapter after the first: that it is given there states that its base is what the stages
// before it make. Names can contradict the statement: an adapter that names the base of an earlier one was trained
// beside it, not on it.
func (p *Plan) chainEvidence(i int, named string) (Judgement, string) {
	nothing := Judgement{Evidence: ByNothing}
	for k := range i {
		if earlier := p.Stages[k].Adapter; named != "" && strings.EqualFold(named, earlier.Config.BaseModel) {
			return nothing, fmt.Sprintf("it was trained on %s itself, as %s was, and not on what %s makes of it", named, earlier.Name(), earlier.Name())
		}
	}
	root := ""
	if l := p.Base.Origin.Lineage; l != nil {
		root = l.Root.HubID
	}
	for _, claim := range append(p.Base.Origin.Claims, HubClaim{ID: root}) {
		if named != "" && strings.EqualFold(claim.ID, named) {
			return nothing, fmt.Sprintf("it was trained on %s itself, not on what the stages before it make of it", named)
		}
	}
	return Judgement{Evidence: ByChain, Explanation: fmt.Sprintf("given right after %s, whose output is thereby stated to be %s",
		p.Stages[i-1].Adapter.Name(), quoted(named))}, ""
}

// baseIdentity says what is known of the base, to go after "the base".
func (p *Plan) baseIdentity() string {
	if len(p.Base.Origin.Claims) == 0 {
		return "carries no hub id"
	}
	var ids []string
	for _, c := range p.Base.Origin.Claims {
		ids = append(ids, c.ID)
	}
	return "is " + strings.Join(slices.Compact(ids), ", ")
}

func quoted(name string) string {
	if name == "" {
		return "a base that it does not name"
	}
	return name
}

func rootName(l *Lineage) string {
	if l.Root.HubID != "" {
		return l.Root.HubID
	}
	return l.Root.Name
}

func adapterNames(l *Lineage) string {
	var names []string
	for _, s := range l.Stages {
		names = append(names, s.Adapter)
	}
	return strings.Join(names, ", then ")
}

// refusal explains what merging would give, what was meant, and how to go on.
func (p *Plan) refusal(i int, why string, is Fingerprint) string {
	a := p.Stages[i].Adapter
	named := a.Config.BaseModel
	var b strings.Builder
	fmt.Fprintf(&b, "not merged: nothing shows that this is the base that %s was trained on.\n", a.Name())
	fmt.Fprintf(&b, "  %s.\n", why)
	base := p.baseLabel(i)
	intended, missing := named, fmt.Sprintf("the stages that make %s out of %s", quoted(named), base)
	switch {
	case isHubID(named) && i == 0 && p.Base.Origin.Lineage == nil && len(p.Base.Origin.Claims) == 0:
		missing = fmt.Sprintf("anything in the base's metadata that says that it is %s", named)
	case named == "":
		intended = "its own base"
	case !isHubID(named):
		intended = fmt.Sprintf("private intermediate (%s)", named)
	}
	fmt.Fprintf(&b, "    published = %s + Δ   (what this merge would make)\n", base)
	fmt.Fprintf(&b, "    intended  = %s + Δ   (what was trained and measured)\n", intended)
	fmt.Fprintf(&b, "    missing   = %s\n", missing)
	fmt.Fprintf(&b, "To go on:\n")
	fmt.Fprintf(&b, "  give the missing stages, in their order, before it:  --adapter STAGE1 --adapter %s\n", a.Path)
	if i == 0 {
		fmt.Fprintf(&b, "  or, if you know that this base is the one it was trained on, state it:  --base-fingerprint %s\n", is.short())
	}
	fmt.Fprintf(&b, "  or merge all the same with --accept-base-mismatch; the merged model says so for ever")
	if strings.Contains(strings.ToLower(named), "bnb-4bit") {
		fmt.Fprintf(&b, "\nThe name says that the training saw weights quantised to 4 bits; even the full model is not quite that base")
	}
	return b.String()
}

// baseLabel names what stage i would be merged into.
func (p *Plan) baseLabel(i int) string {
	label := p.Base.Name()
	if len(p.Base.Origin.Claims) > 0 {
		label = p.Base.Origin.Claims[0].ID
	}
	if l := p.Base.Origin.Lineage; l != nil {
		label = rootName(l) + " + " + strings.ReplaceAll(adapterNames(l), ", then ", " + ")
	} else {
		label = "stock " + label
	}
	for _, s := range p.Stages[:i] {
		label += " + " + s.Adapter.Name()
	}
	return label
}

// Holds tells whether the evidence is about the model with this fingerprint.
func (j Judgement) Holds(base Fingerprint) bool {
	return j.content == "" && !j.Mismatch || j.content != "" && base.Matches(j.content)
}
