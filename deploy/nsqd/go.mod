module sluicegate/deploy/nsqd

go 1.21

require github.com/nsqio/nsq v1.3.0

// nsq 1.3.0 itself replaces go-svc; a replacement only counts in the main module, so it is repeated here.
replace github.com/judwhite/go-svc => github.com/mreiferson/go-svc v1.2.2-0.20210815184239-7a96e00010f6
