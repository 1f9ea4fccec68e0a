module github.com/countmill/countmill/cmd/countmill-backup

go 1.26.0

require (
	github.com/countmill/countmill v0.0.0
	gocloud.dev v0.44.0
)

replace github.com/countmill/countmill => ../../
