module bench

go 1.21

require github.com/dtm-labs/dtm v1.19.0
