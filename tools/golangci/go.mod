module github.com/countmill/countmill/tools/golangci

go 1.26.0
