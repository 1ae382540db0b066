package engine

import (
	"context"
	"errors"
)

// Option is a choice for New, in go-llama.cpp's words.
type Option func(*LoadOptions)

// SetContext sets EngineOptions.ContextLength.
func SetContext(tokens int) Option { return func(o *LoadOptions) { o.Engine.ContextLength = tokens } }

// SetGPULayers sets LoadOptions.GPULayers.
func SetGPULayers(n GPULayers) Option { return func(o *LoadOptions) { o.GPULayers = n } }

// SetParallel sets EngineOptions.Lanes.
func SetParallel(lanes int) Option { return func(o *LoadOptions) { o.Engine.Lanes = lanes } }

// SetModelThreads sets EngineOptions.Threads and PromptThreads.
func SetModelThreads(n int) Option {
	return func(o *LoadOptions) { o.Engine.Threads, o.Engine.PromptThreads = n, n }
}

// SetMMap says whether the file is mapped (the default) or read.
func SetMMap(on bool) Option { return func(o *LoadOptions) { o.NoMmap = !on } }

// SetKVType sets EngineOptions.KVType.
func SetKVType(t KVType) Option { return func(o *LoadOptions) { o.Engine.KVType = t } }

// SetLoadProgress sets LoadOptions.Progress.
func SetLoadProgress(f func(share float64)) Option { return func(o *LoadOptions) { o.Progress = f } }

// New loads a model and makes an Engine for it, which owns the model: Close frees both.
func New(ctx context.Context, path string, opts ...Option) (*Engine, error) {
	var o LoadOptions
	for _, set := range opts {
		set(&o)
	}
	m, err := Load(ctx, path, o)
	if err != nil {
		return nil, err
	}
	e, err := m.NewEngine(ctx, o.Engine)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	e.ownsModel = true
	return e, nil
}

// PredictOption is a choice for Predict, in go-llama.cpp's words.
type PredictOption func(*predictOptions)

type predictOptions struct {
	request  Request
	callback func(token string) bool
}

// SetTokens sets the most tokens to generate.
func SetTokens(n int) PredictOption { return func(p *predictOptions) { p.request.MaxTokens = n } }

// SetTemperature sets Sampling.Temperature; 0 is greedy.
func SetTemperature(t float32) PredictOption {
	return func(p *predictOptions) { p.request.Sampling.Temperature = t }
}

// SetTopK sets Sampling.TopK.
func SetTopK(k int) PredictOption { return func(p *predictOptions) { p.request.Sampling.TopK = k } }

// SetTopP sets Sampling.TopP.
func SetTopP(v float32) PredictOption { return func(p *predictOptions) { p.request.Sampling.TopP = v } }

// SetMinP sets Sampling.MinP.
func SetMinP(v float32) PredictOption { return func(p *predictOptions) { p.request.Sampling.MinP = v } }

// SetSeed sets Sampling.Seed.
func SetSeed(seed uint32) PredictOption {
	return func(p *predictOptions) { p.request.Sampling.Seed = seed }
}

// SetPenalty sets Sampling.RepeatPenalty.
func SetPenalty(v float32) PredictOption {
	return func(p *predictOptions) { p.request.Sampling.RepeatPenalty = v }
}

// SetRepeat sets Sampling.PenaltyWindow.
func SetRepeat(tokens int) PredictOption {
	return func(p *predictOptions) { p.request.Sampling.PenaltyWindow = tokens }
}

// SetStopWords sets Request.Stop.
func SetStopWords(stop ...string) PredictOption {
	return func(p *predictOptions) { p.request.Stop = stop }
}

// SetTokenCallback is called with each piece of text (whole UTF-8 characters) as it comes, in Predict's goroutine.
// Returning false ends the generation.
func SetTokenCallback(f func(text string) bool) PredictOption {
	return func(p *predictOptions) { p.callback = f }
}

// Predict completes a text and returns what was generated, without the prompt. The text is taken as the caller's own:
// special tokens in it are recognised. For conversations use a ChatTemplate, Tokenize and Generate.
func (e *Engine) Predict(ctx context.Context, text string, opts ...PredictOption) (string, error) {
	p := predictOptions{callback: func(string) bool { return true }}
	for _, set := range opts {
		set(&p)
	}
	var err error
	if p.request.Prompt, err = e.model.Tokenize([]Segment{{Text: text, FromTemplate: true}}); err != nil {
		return "", err
	}
	stream, err := e.Generate(ctx, p.request)
	if err != nil {
		return "", err
	}
	for event, err := range stream.Events() {
		if err != nil {
			return "", err
		}
		if event.Text != "" && !p.callback(event.Text) {
			break
		}
	}
	result, err := stream.Wait()
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return result.Text, err
}
