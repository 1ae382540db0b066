//go:build !unix

package binread

// View reads n bytes from off into memory for the time of the call of f.
func (f *File) View(off, n int64, fn func([]byte) error) error {
	data := make([]byte, n)
	if _, err := f.f.ReadAt(data, off); err != nil {
		return err
	}
	return fn(data)
}
