module github.com/countmill/countmill/tools/mutate

go 1.26.0
