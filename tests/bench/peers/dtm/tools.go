//go:build tools

// Package tools pins the peer that the benchmark builds.
package tools

import _ "github.com/dtm-labs/dtm"
