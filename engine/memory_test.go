package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestEstimate: what is said before a load is what is measured after it, within 5 %.
func TestEstimate(t *testing.T) {
	ctx := context.Background()
	for name, path := range floatModels(t) {
		for _, kv := range []KVType{KVF16, KVQ8_0} {
			for _, lanes := range []int{1, 16} {
				opt := LoadOptions{Engine: EngineOptions{ContextLength: 2048, Lanes: lanes, KVType: kv, Threads: 1}}
				said, err := Estimate(ctx, path, opt)
				if err != nil {
					if strings.Contains(err.Error(), "does not divide") { // heads of 16 numbers cannot be in blocks of 32
						continue
					}
					t.Fatal(err)
				}
				m := load(t, path, opt)
				is := start(t, m, opt.Engine).Memory()
				t.Logf("%s, %s, %d lanes: said %s, is %s", name, kv, lanes, said, is)
				for _, pair := range [][2]uint64{{said.Weights, is.Weights}, {said.KV, is.KV}, {said.Recurrent, is.Recurrent}, {said.Compute, is.Compute}, {said.Total(), is.Total()}} {
					// llama.cpp logs hundredths of a MiB
					if diff := math.Abs(float64(pair[0]) - float64(pair[1])); diff > 0.05*float64(pair[1]) && diff > 3*0.01*(1<<20) {
						t.Errorf("said %d bytes, are %d", pair[0], pair[1])
					}
				}
				if diff := math.Abs(float64(is.Weights) - float64(said.Weights)); diff > 0.05*float64(is.Weights) {
					t.Errorf("llama.cpp names %d bytes of weights, the file has %d", is.Weights, said.Weights)
				}
				o := opt.Engine.withDefaults(m.header)
				if own := m.header.recurrentBytes(o.Lanes+o.Holders, 0); math.Abs(float64(own)-float64(is.Recurrent)) > 0.02*(1<<20) {
					t.Errorf("recurrent state: computed %d, measured %d", own, is.Recurrent)
				}
			}
		}
	}
}

func (m Memory) String() string {
	return fmt.Sprintf("weights %d, KV %d, recurrent %d, compute %d", m.Weights, m.KV, m.Recurrent, m.Compute)
}

// TestTooLarge: what cannot fit is refused with the numbers, and not tried.
func TestTooLarge(t *testing.T) {
	for _, path := range floatModels(t) {
		_, err := Load(context.Background(), path, LoadOptions{Engine: EngineOptions{ContextLength: 1 << 24, Lanes: 16, KVType: KVF32}})
		if !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "GiB") {
			t.Errorf("%v", err)
		}
		t.Log(err)
		return
	}
}

func TestFitLayers(t *testing.T) {
	for room := uint64(0); room < 500; room += 7 {
		got, err := fitLayers(30, func(layers int) (uint64, uint64, error) { return uint64(50 + 10*layers), room, nil })
		want := 0
		for want < 30 && uint64(50+10*(want+1)) <= room {
			want++
		}
		if err != nil || got != want {
			t.Errorf("room %d: %d layers, want %d (%v)", room, got, want, err)
		}
	}
}
