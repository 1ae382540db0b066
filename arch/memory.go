package arch

// KVBytesPerToken returns the bytes that one position of one sequence takes in the key-value cache, at elemBytes for
// each value (2 for F16).
func (c *Config) KVBytesPerToken(elemBytes int64) int64 {
	full := int64(c.Layers)
	for _, linear := range c.Linear {
		if linear {
			full--
		}
	}
	return full * 2 * c.KVHeads * c.headDim() * elemBytes
}

// StateBytesPerLane returns the bytes of recurrent state that each sequence takes, whatever its length: in float32 the
// matrix of every value head and the last inputs of the convolution, for each layer of linear attention
// (llama.cpp: llama_hparams::n_embd_s, n_embd_r).
func (c *Config) StateBytesPerLane() int64 {
	layers := int64(0)
	for _, linear := range c.Linear {
		if linear {
			layers++
		}
	}
	state := c.ValueHeads * c.ValueDim * c.KeyDim
	conv := (c.ConvKernel - 1) * (2*c.KeyHeads*c.KeyDim + c.ValueHeads*c.ValueDim)
	return layers * 4 * (state + conv)
}
