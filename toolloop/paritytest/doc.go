// Package paritytest holds only tests: the tool loop over the real engine, real templates and real vocabularies,
// compared with what the reference software did.
package paritytest
