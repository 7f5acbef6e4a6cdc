X=( --a 1 # c
 --l (tt|)*3 )
export A=1 B="2"
C=3 run "${X[@]}" \
 --b $C; run2 && run3 &
