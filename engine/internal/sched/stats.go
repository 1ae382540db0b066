package sched

import "time"

// Stats counts what a Scheduler has done since it started. Rates follow from differences of two snapshots.
type Stats struct {
	Requests  int // submitted
	Finished  int // ended, for whatever reason
	Waiting   int // now in the queue
	Running   int // now in a lane
	Held      int // idle sequences now kept for reuse
	UsedCells int // tokens that the memory holds now; what forks share counts once
	Cells     int // room of the memory

	PromptTokens  int // tokens of all admitted prompts
	PrefixHits    int // of these, found in memory
	PrefillTokens int // tokens read in prompt steps; after a preemption they count again
	DecodeTokens  int // tokens read in decode steps

	PromptSteps int // steps that read prompts
	DecodeSteps int // steps that read single tokens; with an attention-only memory a step may do both
	Lanes       int // lanes there are; DecodeTokens / (DecodeSteps × Lanes) is their mean occupancy

	Continued   int // requests that went on in the sequence of their last turn
	Forked      int // requests that began as a copy of a held prefix
	Misses      int // requests that began from nothing
	Kept        int // shared prefixes put aside
	Evictions   int // held sequences dropped for room
	Preemptions int // lanes dropped for room

	StepTime    time.Duration // wall time of all steps
	BackendTime time.Duration // of this, spent inside the Backend and the Samplers
}

// Occupancy is the mean share of the lanes that a decode step used, 0 to 1.
func (s Stats) Occupancy() float64 {
	if s.DecodeSteps == 0 {
		return 0
	}
	return float64(s.DecodeTokens) / float64(s.DecodeSteps*s.Lanes)
}

// Overhead is the share of step time spent in the scheduler itself, 0 to 1.
func (s Stats) Overhead() float64 {
	if s.StepTime == 0 {
		return 0
	}
	return 1 - float64(s.BackendTime)/float64(s.StepTime)
}
