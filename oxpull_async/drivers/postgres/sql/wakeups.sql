-- name: channel
-- Where wake-ups are told and heard.
SELECT {{channel}}
